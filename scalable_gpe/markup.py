"""HTML text that is safe by construction: every value that enters an element is escaped."""

from collections.abc import Callable, Iterable
from html import escape
from typing import NewType

Html = NewType("Html", str)

_VOID = frozenset({"img", "link", "meta"})  # elements without an end tag
MAX_TEXT = 1_000  # characters of one text


def text(value: object, max_length: int = MAX_TEXT) -> Html:
    """Any value as text: shortened, then escaped."""
    whole = str(value)
    return _escaped(whole if len(whole) <= max_length else whole[:max_length] + "…")


def _escaped(value: str) -> Html:
    """Safe as content and between double quotes, the only quotes that `element` writes."""
    valid = value.encode("utf-8", "replace").decode("utf-8")  # UTF-8 cannot hold half a surrogate pair
    return Html(escape(valid, quote=False).replace('"', "&quot;"))


def element(name: str, /, *children: Html, **attributes: object) -> Html:
    """One element; values of attributes are escaped here, children are markup already.

    A Python keyword takes an underscore at its end (``class_``); an underscore inside a name becomes a hyphen.

    Examples
    --------
    >>> element("p", text("a < b"), class_="note", data_power='"1"')
    '<p class="note" data-power="&quot;1&quot;">a &lt; b</p>'
    """
    given = "".join(f' {_attribute(key)}="{_escaped(str(one))}"' for key, one in attributes.items())
    return Html(f"<{name}{given}>" + ("" if name in _VOID else f"{joined(children)}</{name}>"))


def _attribute(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")


def joined(parts: Iterable[Html]) -> Html:
    """Pieces of markup, one after the other."""
    return Html("".join(parts))


def table(rows: Iterable[tuple[object, object]]) -> Html:
    """A table of names and values."""
    lines = (element("tr", element("th", text(name), scope="row"), element("td", text(value))) for name, value in rows)
    return element("table", *lines)


_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0;border:none;background:none"


def card(title: str, rows: Iterable[tuple[object, object]]) -> Html:
    """A title, names and values, for a notebook, which has no style sheet of ours."""
    lines = [
        element(
            "tr",
            element("th", text(name), scope="row", style=f"{_CELL};font-weight:600;white-space:nowrap"),
            element("td", text(value, 300), style=_CELL),
        )
        for name, value in rows
    ]
    table = element("table", *lines, style="border-collapse:collapse;margin:4px 0;font-size:13px")
    return element("div", element("strong", text(title)), table, style="font-size:13px;line-height:1.35")


def card_or_text(make: Callable[[], Html], otherwise: object) -> str:
    """A card, or plain text where it cannot be made: to look at a result never fails."""
    try:
        return make()
    except Exception:
        return element("pre", text(otherwise))
