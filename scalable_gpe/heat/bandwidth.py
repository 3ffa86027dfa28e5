"""Choosing epsilon from the distances of the neighbour lists."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.graph.edges import Block, count_components
from scalable_gpe.graph.neighbors import NeighborGraph

RULES = ("auto", "global", "local", "bgh")
_SHARE = 7  # n_neighbors / effective neighbours under "auto"
_FIFTH = 5  # a row with less than a fifth of the median row's effective neighbours is under-connected
_UNDER_CONNECTED = 0.06  # share of under-connected rows above which one epsilon does not suit the data
_TELLING = 14  # in lists shorter than this, under-connected rows may be chance
_JOINED = 1e-6  # smallest weight of an edge that connects two rows
_LEAST_SQUARE = 2.0**-124  # smaller squares lose digits in float32
_WIDE = math.log(100)  # the least and the largest epsilon, from the least and the largest squared distance
_FINE = 2.0**-100  # with a larger epsilon, such squares are as good as 0


def check_epsilon(epsilon: Any) -> float | str:
    """Check epsilon before any work: a positive number or the name of a rule."""
    if isinstance(epsilon, str):
        return checks.check_choice(epsilon, RULES, "epsilon")
    return checks.check_positive(epsilon, "epsilon")


def effective_epsilon(squared: np.ndarray, rule: str = "auto") -> float:
    r"""Epsilon at which the median row has :math:`\sum_j e^{-d_j^2/\epsilon} = \max(m/7, 1)` effective neighbours.

    m is the length of the row's own list: precomputed lists may have different lengths.

    In low dimension it is small, and the last weight is near 1e-3. In high dimension it is large: all neighbours are
    about equally far, and a smaller epsilon would isolate every row.
    """
    positive = _positive(squared, rule)
    squared, targets = _with_targets(squared)
    unit = math.ldexp(1.0, math.frexp(positive.max())[1])  # a power of two: other units of X change no bit

    def excess(log: float) -> float:
        effective = np.exp(-squared / unit / math.exp(log)).sum(axis=1)
        return float(np.median(effective / targets)) - 1

    low, high = (math.log(float(end) / unit) for end in (positive.min(), positive.max()))
    return unit * math.exp(_first_above(excess, low - _WIDE, high + _WIDE))


def _positive(squared: np.ndarray, rule: str) -> np.ndarray:
    """The squared distances above 0; raise if there are none."""
    positive: np.ndarray = squared[np.isfinite(squared) & (squared > 0)]
    if not positive.size:
        raise ValueError(
            f"epsilon={rule!r} needs distances above 0; all distances in the neighbour lists are 0, or so small "
            "beside the largest values of X that float32 loses their squares. Drop the rows with the largest "
            "values, or pass a number."
        )
    return positive


def _first_above(function: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function rises to 0 between `low` and `high`, up to 1e-12; one of these if it does not."""
    while high - low > 1e-12 and low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return high


def _with_targets(squared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists that are not empty, and the target number of effective neighbours of each: max(length / 7, 1)."""
    lengths = np.isfinite(squared).sum(axis=1)
    kept = lengths[lengths > 0]
    return squared[lengths > 0], np.maximum(kept / _SHARE, np.minimum(1.0, 0.9 * kept))


def is_uneven(squared: np.ndarray, epsilon: float) -> bool:
    """Whether `epsilon`, which suits the median row, leaves more than 6 % of the rows under-connected.

    A row is under-connected if it has less than a fifth of the median row's effective neighbours: it would keep most
    of its heat. Evenly sampled manifolds have 0 to 4 % of such rows by chance, in lists of 16 or more neighbours. Lists
    of fewer than 14 are too short to judge.
    """
    if int(np.isfinite(squared).sum(axis=1).max(initial=0)) < _TELLING:
        return False
    squared, targets = _with_targets(squared)
    shares = np.exp(-squared / epsilon).sum(axis=1) / (targets / targets.max())
    return bool((shares < np.median(shares) / _FIFTH).mean() > _UNDER_CONNECTED)


def slope_epsilon(squared: np.ndarray) -> float:
    r"""Epsilon at which :math:`\log \sum e^{-d^2/\epsilon}` grows fastest with :math:`\log \epsilon`.

    The criterion is that of Berry, Giannakis and Harlim. pyDiffMap's epsilon for the same data is a quarter of
    ours, because its kernel is :math:`e^{-d^2/4\epsilon}`.
    """
    positive = _positive(squared, "bgh")
    # whole powers of two between which the squares lie; frexp is exact, log2 is not
    low, high = np.frexp(positive.min())[1] - 1, np.frexp(np.nextafter(positive.max(), 0))[1]
    exponents = np.arange(low - 4.0, high + 5.0)
    sums = np.array([len(squared) + _sum(positive, 2.0**exponent) for exponent in exponents])
    slopes = np.diff(np.log(sums)) / np.log(2.0)
    return float(2.0 ** exponents[int(np.argmax(slopes)) + 1])


def _sum(squared: np.ndarray, epsilon: float) -> float:
    return sum(float(np.exp(-part / epsilon).sum()) for part in np.array_split(squared, 1 + len(squared) // 2**20))


def check_resolution(graph: NeighborGraph, squared: np.ndarray, epsilon: float | str, smallest: float) -> None:
    """Refuse bandwidths of distances whose squares float32 loses beside those of the largest values of X.

    `smallest` is the smallest bandwidth of the stored distances. Distances of precomputed lists are not squared in
    float32, and a distance of 0 means what it says there.
    """
    if graph.method == "precomputed":
        return
    last = np.where(np.isfinite(squared), squared, 0).max(axis=1)
    # the median row decides a rule, each row its own length scale
    share = {"local": 0.0, "auto": 0.5, "global": 0.5, "bgh": 0.5}.get(str(epsilon), 1.0)
    collapsed = bool(np.quantile(last, share) < _LEAST_SQUARE)
    if not collapsed and not (smallest < _FINE and squared.min() < _LEAST_SQUARE):
        return
    lost = math.ldexp(math.sqrt(_LEAST_SQUARE), -graph.exponent)
    raise ValueError(
        f"epsilon={epsilon!r}: beside the largest values of X, float32 loses the squares of distances below "
        f"{lost:.1g}, and the bandwidth is of their size. Drop the rows with the largest values."
    )


def intrinsic_dimension(graph: NeighborGraph) -> float | None:
    """Dimension by maximum likelihood (Levina and Bickel) from the neighbour lists; None if they are too short."""
    lengths = graph.sampled_distances(8192)
    full = lengths[np.isfinite(lengths).all(axis=1) & (lengths[:, 0] > 0)]
    if full.shape[1] < 3 or not len(full):
        return None
    rate = float(np.log(full[:, -1:] / full[:, :-1]).mean())
    return 1 / rate if rate > 0 else None


def epsilon_sweep(graph: NeighborGraph, epsilons: Any = None) -> dict[str, np.ndarray]:
    """Compare values of epsilon, from the stored distances, without a new search.

    Parameters
    ----------
    graph : NeighborGraph
        Neighbour lists.
    epsilons : sequence of float, optional
        By default 25 values around ``epsilon="auto"``.

    Returns
    -------
    dict of equally long arrays
        ``epsilon``, ``lost_mass`` (NaN without X), ``effective_neighbors`` (of the median row), ``last_weight`` (median
        weight of the last neighbour) and ``n_connected_components`` (by edges of weight at least 1e-6).
        ``pandas.DataFrame`` makes a table of it.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> table = gpe.epsilon_sweep(gpe.neighbor_graph(gpe.datasets.circle(300), 16), [1e-3, 1e-2])
    >>> bool(table["lost_mass"][0] < table["lost_mass"][1])
    True
    """
    squared, context = graph.sampled_distances() ** 2, graph.context
    if epsilons is None:
        epsilons = graph.user_epsilon(effective_epsilon(squared)) * np.logspace(-2, 2, 25)
    values = [checks.check_positive(epsilon, "epsilons") for epsilon in np.ravel(np.asarray(epsilons))]
    stored = [graph.stored_epsilon(value) for value in values]
    last = np.where(np.isfinite(squared), squared, 0).max(axis=1)
    return {
        "epsilon": np.array(values),
        "lost_mass": np.array([graph.scan.lost_mass(e) if graph.scan else np.nan for e in stored]),
        "effective_neighbors": np.array([np.median(np.exp(-squared / e).sum(axis=1)) for e in stored]),
        "last_weight": np.array([np.median(np.exp(-last / e)) for e in stored]),
        "n_connected_components": np.array([count_components(graph.edges, context, _shorter(e)) for e in stored]),
    }


def _shorter(epsilon: float) -> Callable[[Block], np.ndarray]:
    """The edges with a weight of at least `_JOINED`."""
    longest = np.sqrt(-epsilon * np.log(_JOINED))
    return lambda block: block.values <= longest
