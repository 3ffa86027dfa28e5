"""Quantiles of an array of all rows, which may be mapped: in two passes, with counts instead of a sorted copy."""

from collections.abc import Sequence

import numpy as np

from scalable_gpe.storage.mapped import pieces

_HALF = 16  # bits of a float32 that one pass looks at


def quantiles(values: np.ndarray, shares: Sequence[float], *, positive: bool = False) -> np.ndarray:
    """Quantiles of a float32 vector without negative numbers, or of its `positive` entries, as numpy computes them.

    The bits of such numbers, read as integers, are in the order of the numbers. The first pass counts their upper half,
    the second the lower half of those that share the upper half of a wanted number.
    """
    upper = _count(values)
    lower = {0: _count(values, 0)} if positive else {}
    skipped = int(lower[0][0]) if positive else 0
    places = skipped + np.asarray(shares, np.float64) * (int(upper.sum()) - skipped - 1)
    ranks = np.unique([np.floor(places), np.ceil(places)]).astype(np.int64)
    groups = np.searchsorted(np.cumsum(upper), ranks, side="right")
    for group in set(groups.tolist()) - set(lower):
        lower[group] = _count(values, group)
    before = np.cumsum(upper) - upper
    bits = [
        (group << _HALF) + int(np.searchsorted(np.cumsum(lower[group]), rank - before[group], side="right"))
        for rank, group in zip(ranks.tolist(), groups.tolist(), strict=True)
    ]
    at_ranks = np.array(bits, np.uint32).view(np.float32).astype(np.float64)
    return np.asarray(np.interp(places, ranks, at_ranks))


def _count(values: np.ndarray, group: int | None = None) -> np.ndarray:
    """How often each upper half of the bits occurs, or each lower half among those whose upper half is `group`."""
    counts = np.zeros(2**_HALF, np.int64)
    for start, stop in pieces(len(values)):
        bits = values[start:stop].view(np.uint32)
        halves = bits >> _HALF
        counted = halves if group is None else bits[halves == group] & (2**_HALF - 1)
        counts += np.bincount(counted, minlength=2**_HALF)
    return counts
