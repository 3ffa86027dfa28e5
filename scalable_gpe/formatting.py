"""Numbers and reports in words, for the command line and the page of a run."""

from typing import Any


def report_lines(report: dict[str, Any], limit: int | None) -> list[tuple[str, str]]:
    """The report as a reader wants it: what was made, how exact it is, what it took."""
    reasons = report.get("reasons", {})

    def figure(name: str, form: str = "{:.3g}") -> str:
        value = report[name]
        return f"unknown: {reasons.get(name, 'not measured')}" if value is None else form.format(value)

    error = f" +- {report['recall_error']:.2g}" if report["recall_error"] else ""
    sweeps = report["sweeps"]
    seconds = report["stage_seconds"]
    lines = [
        ("rows", f"{report['n_rows']:,}, {report['n_duplicates']:,} of them duplicates"),
        ("graph", f"{report['n_neighbors']} neighbours each ({report['method']}), {report['nnz']:,} entries of K"),
        ("connected components", _pieces(report)),
        ("recall", figure("recall", "{:.4f}") + error),
        ("epsilon", figure("epsilon", "{:.6g}") + _spread(report.get("sigma"))),
        ("lost mass", figure("lost_mass", "{:.2%}")),
        ("Sinkhorn", _sinkhorn(report)),
        ("power", plain(report["power"])),
        ("polynomial error", plain(report["polynomial_error"])),
        ("sweeps over K", f"{sweeps['heat']} heat, {sweeps['interval']} interval, {sweeps['sketch']} sketch"),
    ]
    lines += [(f"time, {stage}", in_time(value)) for stage, value in seconds.items()]
    lines.append(("time in all", in_time(report["total_seconds"])))
    within = "" if limit is None else f" of {in_bytes(limit)} allowed"
    lines.append(("peak memory", in_bytes(report["peak_memory"]) + within))
    lines += [("warning", text) for text in report.get("warnings", [])]
    return lines


def _pieces(report: dict[str, Any]) -> str:
    pieces = report["n_connected_components"]
    apart = ", and distances between them mean only that they are apart" if pieces > 1 else ""
    return f"{pieces:,}{apart}; isolated rows: {report['n_isolated']:,}"


def _spread(sigma: dict[str, Any] | None) -> str:
    """What is to be said of local length scales."""
    if sigma is None:
        return ""
    return f", the median of sigma^2; sigma from {sigma['low']:.3g} to {sigma['high']:.3g} (1 % to 99 % of the points)"


def _sinkhorn(report: dict[str, Any]) -> str:
    if report["sinkhorn_iterations"] is None:
        return "not needed: symmetric scaling"
    state = "converged" if report["converged"] else "NOT converged"
    return f"{state} in {report['sinkhorn_iterations']} sweeps, residual {report['sinkhorn_residual']:.1e}"


def plain(value: Any) -> str:
    """A value of a report or of parameters; of a dict, one for each power."""
    if isinstance(value, dict):
        return ", ".join(f"{plain(one)} (power {name})" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def in_bytes(number: float) -> str:
    """Bytes in the unit that suits.

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
    """Seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
