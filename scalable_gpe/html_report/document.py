"""One HTML file with its style, its script and its data inside: it loads nothing, its policy allows nothing else."""

import base64
import hashlib
from importlib.resources import files

from scalable_gpe.markup import Html, element, text


def document(title: str, *, body: Html, style: str, data: str, script: str) -> str:
    """A whole page; `data` is JSON for the script, which reads the element with the id "data"."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script, style)),
        element("link", rel="icon", href="data:,"),
        element("title", text(title)),
        element("style", Html(style)),
    )
    # no text of the data can end the script element, and browsers never run it
    safe = data.replace("<", "\\u003c").replace("&", "\\u0026").encode("utf-8", "replace").decode("utf-8")
    content = element(
        "body",
        body,
        element("script", Html(safe), type="application/json", id="data"),
        element("script", Html(script)),
    )
    return "<!DOCTYPE html>\n" + element("html", head, content, lang="en") + "\n"


def asset(name: str) -> str:
    """Text of a file in assets/."""
    return files("scalable_gpe.html_report").joinpath("assets", name).read_text(encoding="utf-8")


def to_base64(values: bytes) -> str:
    """Bytes as text within JSON."""
    return base64.b64encode(values).decode("ascii")


def _policy(script: str, style: str) -> str:
    """Allow this script, this style and pictures within the page; nothing else, from nowhere."""
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return f"'sha256-{to_base64(hashlib.sha256(content.encode()).digest())}'"
