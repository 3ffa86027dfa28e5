"""Numbers, reports and audits as text, for the command line, plots and the report page."""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any, NewType

_FIRST = ("rows", "graph", "connected components", "recall", "power", "total time", "workers", "peak memory")
Html = NewType("Html", str)
_VOID = frozenset({"img", "link", "meta"})  # elements without an end tag
MAX_TEXT = 1_000  # characters of one text


def report_lines(report: dict[str, Any], limit: int | None) -> list[tuple[str, str]]:
    """Name and text of each line: the result, its accuracy, its cost, then the warnings."""
    reasons = report.get("reasons", {})

    def figure(name: str, form: str) -> str:
        value = report.get(name)  # reports of earlier versions lack some
        return f"unknown: {reasons.get(name, 'not measured')}" if value is None else form.format(value)

    error = f" +- {report['recall_error']:.2g}" if report["recall_error"] else ""
    if report["method"] in ("kdtree", "brute") and report["recall"] == 1.0:
        error = ", an exact search"
    iterations, residual = report["sinkhorn_iterations"], report["sinkhorn_residual"]
    allowed = "" if limit is None else f" of {in_bytes(limit)} allowed"
    return [
        ("rows", f"{report['n_rows']:,}, {report['n_duplicates']:,} of them duplicates{_dropped(report)}"),
        ("graph", f"{report['n_neighbors']} neighbours each ({report['method']}), {report['nnz']:,} entries of K"),
        ("connected components", _components(report)),
        ("recall", figure("recall", "{:.4f}") + error),
        ("missing weight", figure("missing_weight", "{:.2%}")),
        ("epsilon", figure("epsilon", "{:.6g}") + _spread(report.get("sigma"))),
        ("lost mass", figure("lost_mass", "{:.2%}") + _usual(report["lost_mass"])),
        ("Sinkhorn", _sinkhorn(iterations, residual, report["converged"])),
        ("power", _powers(report)),
        ("polynomial error", plain(report["polynomial_error"])),
        ("sweeps over K", ", ".join(f"{plain(count)} {stage}" for stage, count in report["sweeps"].items())),
        *((f"time, {stage}", in_time(seconds)) for stage, seconds in report["stage_seconds"].items()),
        ("total time", in_time(report["total_seconds"])),
        ("workers", report.get("cluster") or "threads of one process"),
        ("peak memory", in_bytes(report["peak_memory"]) + allowed),
        *(("warning", text) for text in report.get("warnings", [])),
    ]


def first_lines(report: dict[str, Any], limit: int | None) -> list[tuple[str, str]]:
    """The lines that need no explanation; a warning was shown when it came up."""
    return [line for line in report_lines(report, limit) if line[0] in _FIRST]


def _components(report: dict[str, Any]) -> str:
    n_graph, n_kernel = report["n_connected_components"], report.get("n_kernel_components")
    counts = f"{n_graph:,}" if n_kernel in (None, n_graph) else f"{n_graph:,} of the graph, {n_kernel:,} of the kernel"
    apart = ", and distances between them mean only that they are apart" if max(n_graph, n_kernel or 1) > 1 else ""
    return f"{counts}{apart}; isolated rows: {report['n_isolated']:,}"


def _dropped(report: dict[str, Any]) -> str:
    n_dropped = report.get("n_dropped")
    return f"; {n_dropped:,} others with missing values were left out" if n_dropped else ""


def _usual(lost_mass: float | None) -> str:
    """What to think of a large lost mass; one that matters has a warning."""
    expected = ", expected in many dimensions: distances follow the neighbour graph, not the dense kernel"
    return expected if lost_mass is not None and lost_mass > 0.2 else ""


def _spread(sigma: Mapping[str, float] | None) -> str:
    """Range of local length scales, where there are any."""
    if sigma is None:
        return ""
    return f", the median of sigma^2; sigma from {sigma['low']:.3g} to {sigma['high']:.3g} (1 % to 99 % of the points)"


def _sinkhorn(n_iterations: int | None, residual: float, converged: bool) -> str:
    if n_iterations is None:
        return "not needed: symmetric scaling"
    return f"{'converged' if converged else 'NOT converged'} in {n_iterations} sweeps, residual {residual:.1e}"


def _powers(report: Mapping[str, Any]) -> str:
    """The powers of a run, and the range that "all" sums."""
    if not report.get("horizon"):
        return plain(report["power"])
    first = report.get("first_power") or 1
    later = f", from power {first}" if first > 1 else ""
    return f"{plain(report['power'])} (horizon {report['horizon']}{later})"


def power_title(power: int | str) -> str:
    """Name of one power in tables and pictures."""
    return "all scales" if isinstance(power, str) else f"power {power}"


def plain(value: Any) -> str:
    """A value of a report or of parameters; a dict holds one value for each power.

    Examples
    --------
    >>> plain([16, 256]), plain({16: 0.00012})
    ('16, 256', '0.00012 (power 16)')
    """
    if isinstance(value, dict):
        return ", ".join(f"{plain(one)} ({power_title(name)})" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def in_bytes(number: float) -> str:
    """Bytes in decimal units, as `memory_limit` reads them: ``dask.utils.format_bytes`` prints binary ones (1.86 GiB).

    Examples
    --------
    >>> in_bytes(1_994_000_000)
    '1.99 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.4g} TB"


def in_time(seconds: float) -> str:
    """Seconds, minutes or hours.

    Examples
    --------
    >>> in_time(90), in_time(600)
    ('90.0 s', '10.0 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# --- markup ---------------------------------------------------------------------------------------


def text(value: object, max_length: int = MAX_TEXT) -> Html:
    """Any value as text: shortened, then escaped."""
    return _escaped(shortened(value, max_length))


def shortened(value: object, max_length: int) -> str:
    """The text of a value, with an ellipsis in place of what is too long."""
    whole = str(value)
    return whole if len(whole) <= max_length else whole[: max_length - 1] + "…"


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


def card(title: str, rows: Iterable[tuple[object, object]]) -> Html:
    """A title, names and values, for a notebook, which has no style sheet of ours."""
    left = "text-align:left;vertical-align:top"
    lines = [
        element("tr", element("th", text(name), scope="row", style=left), element("td", text(value, 300), style=left))
        for name, value in rows
    ]
    return element("div", element("strong", text(title)), element("table", *lines))


def card_or_text(make: Callable[[], Html], otherwise: object) -> str:
    """A card, or plain text where it cannot be made: to look at a result never fails."""
    try:
        return make()
    except Exception:
        return element("pre", text(otherwise))


def embedding_card(report: dict[str, Any], parameters: dict[str, Any]) -> Html:
    """The report of an embedding and how it was made, as HTML."""
    chosen = [(name, plain(parameters[name])) for name in ("metric", "normalization", "random_state")]
    title = f"Embedding of {report['n_rows']:,} rows in {parameters['n_components']} dimensions"
    return card(title, report_lines(report, parameters.get("memory_limit")) + chosen)
