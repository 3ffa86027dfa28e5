"""The embedding of a kernel that is the user's own matrix, and of new rows by their kernel with the training rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.checks import Power
from scalable_gpe.errors import Message
from scalable_gpe.execution.stages import complete
from scalable_gpe.heat.normalization import HeatKernel, row_sums
from scalable_gpe.sketch.gaussian_process import SketchParameters, SketchResult, SketchStage

PRECOMPUTED_KERNEL = "precomputed_kernel"


@dataclass(frozen=True)
class KernelEmbedding:
    """An embedding of the user's own kernel matrix.

    Attributes
    ----------
    points : ndarray (N, k) of float32
        Rows are in the order of the matrix.
    heat : HeatKernel
        The normalised kernel.
    power : int or "all"
        The power of the embedding.
    """

    points: np.ndarray
    heat: HeatKernel
    power: Power
    sketching: SketchParameters
    sketch: SketchResult

    @property
    def report(self) -> dict[str, Any]:
        """What the run measured."""
        iterated, horizon = self.heat.normalization == "bistochastic", self.sketch.horizon
        return {
            "n_rows": self.heat.shape[0],
            "n_isolated": self.heat.n_isolated,
            "nnz": self.heat.kernel.nnz,
            "sinkhorn_iterations": self.heat.n_iter if iterated else None,
            "sinkhorn_residual": self.heat.residual if iterated else None,
            "converged": self.heat.converged,
            "power": self.power,
            "horizon": None if horizon is None else horizon.horizon,
            "first_power": None if horizon is None else self.sketch.plans[self.power].filter.first,
        }

    def transform(self, rows: Any) -> np.ndarray:
        """Embed new rows, given by their kernel with all training rows (M x N)."""
        columns = [part.table.read(0, part.table.shape[0]) for part in self.sketch.columns[self.power]]
        Z = np.concatenate(columns, axis=1)[:, : self.sketching.n_columns]
        wide = extend(self.heat, rows, Z) / np.sqrt(self.sketching.n_columns)
        axes = self.sketch.axes(self.sketching, self.heat.context)
        if axes:
            return axes[self.power].rotate(wide, self.points.shape[1])
        points: np.ndarray = wide.astype(np.float32)
        return points


def embed_kernel(heat: HeatKernel, sketching: SketchParameters) -> KernelEmbedding:
    """Embed a kernel matrix in memory, at one power."""
    context, name, (power,) = heat.context, sketching.name(heat.name), sketching.powers
    sketch = complete(SketchStage(heat, sketching, name), context)
    sketch.publish(heat, sketching, power, context, f"{name}/points")
    points = np.asarray(context.store.detach(f"{name}/points"))
    return KernelEmbedding(points, heat, power, sketching, sketch)


def extend(heat: HeatKernel, rows: Any, values: np.ndarray) -> np.ndarray:
    r"""``s(x) sum_j k(x, x_j) values_j`` for new rows k(x, .); values are in the order of the matrix.

    As for new points, s(x) = 1 / sum_j k(x, x_j) w_j s_j, or 1 / (q(x) sqrt(v(x))) for the symmetric kernel.
    """
    kernel_rows = _checked_rows(rows, heat.shape[0])
    w = heat.weights
    if heat.normalization == "symmetric":
        q = row_sums(heat.kernel, w, heat.context, "transform")
        scale = np.sqrt((kernel_rows @ w) * (kernel_rows @ (w / q)))
    else:
        scale = kernel_rows @ (w * heat.scale_points)
    alone = np.flatnonzero(~(scale > 0))
    if alone.size:
        raise ValueError(
            Message(
                f"`X` must have a positive kernel with some training row in each new row; none in "
                f"{checks.rows_named(alone)}. Drop these rows."
            )
        )
    extended: np.ndarray = (kernel_rows @ values.astype(np.float64)) / scale[:, None]
    return extended


def _checked_rows(rows: Any, n_rows: int) -> Any:
    sparse = hasattr(rows, "tocsr")
    given: Any = rows.tocsr().astype(np.float64) if sparse else np.asarray(rows, np.float64)
    values: np.ndarray = given.data if sparse else given
    if given.ndim != 2 or given.shape[1] != n_rows or not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(
            Message(
                f"`X` must hold the kernel of new rows with the {n_rows} training rows, finite and at least 0; got "
                f"shape {tuple(given.shape)}."
            )
        )
    return given
