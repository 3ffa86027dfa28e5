"""What a notebook shows of an embedding: its figures."""

from typing import Any

from scalable_gpe.formatting import in_time, plain, powers_text, report_lines
from scalable_gpe.markup import Html, card

_MEASURED = ("rows", "graph", "connected components", "epsilon", "recall", "missing weight", "lost mass", "Sinkhorn")


def embedding_card(report: dict[str, Any], parameters: dict[str, Any]) -> Html:
    """Parameters, measured figures and seconds of an embedding, as HTML."""
    measured = [line for line in report_lines(report, None) if line[0] in _MEASURED]
    seconds = ", ".join(f"{stage} {in_time(spent)}" for stage, spent in report["stage_seconds"].items())
    chosen = ("metric", "normalization", "n_sketch", "random_state")
    rows = [
        ("power", powers_text(report)),
        *measured,
        *((name, plain(parameters[name])) for name in chosen if parameters.get(name) is not None),
        ("time", f"{in_time(report['total_seconds'])} ({seconds})"),
        *(("warning", one) for one in report.get("warnings", [])[:3]),
    ]
    title = f"Embedding of {report['n_rows']:,} rows in {parameters['n_components']} dimensions"
    return card(title, rows)
