"""One HTML file with its style, its script and its data inside: it loads nothing, its policy allows nothing else."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from scalable_gpe.io.files import check_target
from scalable_gpe.markup import Html, element, text


def document(title: str, *, body: Html, data: Mapping[str, Any], theme: str = "auto") -> str:
    """A whole page; its script reads `data`. The theme "auto" follows the browser, "light" and "dark" do not."""
    style, script = _asset("page.css"), _asset("page.js")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script, style)),
        element("link", rel="icon", href="data:,"),
        element("title", text(title)),
        element("style", Html(style)),
    )
    content = element(
        "body",
        element("main", body),
        element("script", Html(_safe_json(data)), type="application/json", id="data"),
        element("script", Html(script)),
    )
    return "<!DOCTYPE html>\n" + element("html", head, content, lang="en", class_=theme) + "\n"


def check_path(path: Any) -> Path:
    """Check that a page can be written to a path."""
    target = check_target(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a page ends in .html; got {str(target)!r}.")
    return target


def write_page(page: str, path: Any) -> Path:
    """Write a page; an existing one is replaced when the new one is complete."""
    target = check_path(path)
    unfinished = target.with_name(f".unfinished-{target.name}")
    unfinished.write_text(page, encoding="utf-8", newline="\n")
    unfinished.replace(target)
    return target


def to_base64(values: bytes) -> str:
    """Bytes as text within JSON."""
    return base64.b64encode(values).decode("ascii")


def _safe_json(data: Mapping[str, Any]) -> str:
    """JSON of which no text can end the script element, and which browsers never run."""
    whole = json.dumps(data, ensure_ascii=False)
    return whole.replace("<", "\\u003c").replace("&", "\\u0026").encode("utf-8", "replace").decode("utf-8")


def _asset(name: str) -> str:
    return files("scalable_gpe.plot").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Allow this script, this style and pictures within the page; nothing else, from nowhere."""
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return f"'sha256-{to_base64(hashlib.sha256(content.encode()).digest())}'"
