"""Principal axes of a sketch: columns in the order of how much they matter, of which the leading ones may be kept.

The axes are those of the ordinary rows (`heat/ordinary.py`): rows that keep more than 0.99 of their heat are far from
everything and would determine the axes alone. Points are rotated, not shifted. Sums run over fixed chunks of rows in a
fixed order, on one BLAS thread, so that the axes do not depend on blocks, threads or limits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.process import process
from scalable_gpe.execution.workers import Workers
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.store import Table, read_whole, write_whole

_SUM_ROWS = 65_536  # rows of one partial sum: a fixed number
_READ_ROWS = 8192  # rows that are multiplied together: a fixed number

ReadRows = Callable[[int, int], np.ndarray]


@dataclass(frozen=True)
class Axes:
    """Principal axes in the columns of `vectors`, the leading one first, and the variance along each."""

    vectors: np.ndarray
    variances: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Share of the variance along each axis."""
        total = self.variances.sum()
        shares: np.ndarray = self.variances / total if total > 0 else np.zeros_like(self.variances)
        return shares

    def leading(self, count: int) -> np.ndarray:
        """The first axes as a matrix that rows are multiplied by."""
        return np.ascontiguousarray(self.vectors[:, :count])

    def rotate(self, values: np.ndarray, count: int) -> np.ndarray:
        """Coordinates of some rows along the first axes, in float32."""
        from scalable_gpe.loops import sparse

        out = np.empty((len(values), count), np.float32)
        sparse.rotate_rows(np.ascontiguousarray(values), self.leading(count), out)
        return out

    def rotate_back(self, values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Some columns of the sketch of some rows, from their coordinates along all axes."""
        columns: np.ndarray = values @ self.vectors[chosen].T
        return columns


def distance_error(axes: Axes, n_axes: int, roots: np.ndarray, rows: np.ndarray, same: np.ndarray) -> float:
    """Root mean square error of distances along the first axes, from roots to rows of a wide sketch, where `same`.

    The mean of (1 - r)^2 + r^2 / (2 n_sketch) for r, a distance along the axes as a share of that in the wide sketch:
    what the axes leave out, and the random error of the sketch.
    """
    wide = _distances(roots, rows)[same]
    kept = _distances(*(axes.rotate(one.astype(np.float32), n_axes) for one in (roots, rows)))[same]
    ratio, random = kept[wide > 0] / wide[wide > 0], 1 / (2 * roots.shape[1])
    return float(np.sqrt(((1 - ratio) ** 2 + ratio**2 * random).mean() if len(ratio) else random))


def _distances(roots: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.stack([np.linalg.norm(rows - root, axis=1) for root in roots])


@dataclass(frozen=True)
class AxesMetadata:
    """Variance along each axis."""

    variances: tuple[float, ...]


def principal_axes(read: ReadRows, n_rows: int, ordinary: ReadRows, workers: Workers) -> Axes:
    """Axes of the rows that `read` returns for a range, of those where the mask `ordinary` is true; all if none is."""

    def sums(piece: tuple[int, int]) -> tuple[int, np.ndarray, np.ndarray]:
        n_counted, total, gram = 0, None, None
        for start in range(piece[0], piece[1], _READ_ROWS):
            stop = min(start + _READ_ROWS, piece[1])
            counted = ordinary(start, stop)
            n_counted += int(np.count_nonzero(counted))
            rows = np.where(counted[:, None], np.asarray(read(start, stop), np.float64), 0.0)
            total = rows.sum(axis=0) if total is None else total + rows.sum(axis=0)
            gram = rows.T @ rows if gram is None else gram + rows.T @ rows
        assert total is not None and gram is not None
        return n_counted, total, gram

    with process.one_blas_thread():
        parts = workers.map(sums, ranges(n_rows, _SUM_ROWS), count=False)
        n_counted, total, gram = parts[0]
        for more_counted, more_total, more_gram in parts[1:]:
            n_counted, total, gram = n_counted + more_counted, total + more_total, gram + more_gram
        if n_counted == 0:
            return principal_axes(read, n_rows, _every_row, workers)
        covariance = gram / n_counted - np.outer(total, total) / n_counted**2
        if not np.isfinite(covariance).all():
            raise ValueError("points must be finite; they hold NaN or infinity. Run embed again in another store.")
        variances, vectors = np.linalg.eigh(covariance)
    variances, vectors = np.maximum(variances[::-1], 0.0), vectors[:, ::-1]
    # eigenvectors have no sign of their own: the largest entry is made positive
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    return Axes(np.ascontiguousarray(vectors * signs), variances)


def _every_row(start: int, stop: int) -> np.ndarray:
    return np.ones(stop - start, np.bool_)


def find_axes(context: Context, name: str) -> Axes | None:
    """Return the axes stored under a name, or None."""
    metadata = context.store.read(name, AxesMetadata)
    if metadata is None:
        return None
    return Axes(read_whole(context.store.open_table(f"{name}/axes")), np.array(metadata.variances))


def save_axes(axes: Axes, context: Context, name: str) -> None:
    """Store axes under a name."""
    write_whole(context.store.table(f"{name}/axes", axes.vectors.shape, np.float64), axes.vectors)
    context.store.commit(name, AxesMetadata(tuple(axes.variances.tolist())))


def write_rotated(wide: Table, axes: Axes, out: Table, context: Context) -> None:
    """Write the coordinates of all rows along the first axes."""

    def write(piece: tuple[int, int]) -> None:
        out.write(piece[0], axes.rotate(wide.read(*piece), out.shape[1]))

    context.workers.map(write, ranges(out.shape[0], out.shard_rows), count=False)
