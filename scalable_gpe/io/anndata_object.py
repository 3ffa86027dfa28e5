"""AnnData objects as points: in memory, backed by a file, or lazy.

Nothing here imports anndata: the object says by itself what it is. In a backed object only X is in the file; a lazy one
(anndata.experimental.read_lazy) holds dask arrays.
"""

from typing import Any

import numpy as np

from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.io.anndata_parts import map_or_copy
from scalable_gpe.io.annotations import FrameAnnotations
from scalable_gpe.io.points import Points, first_names, name_array

_PCA = "X_pca"
_COUNTED_ROWS = 64
_LEAST_COUNT = 100  # in the mean row: small panels of genes have some hundred


def is_anndata(value: Any) -> bool:
    """Whether a value is an AnnData object."""
    return any(one.__name__ == "AnnData" and one.__module__.split(".")[0] == "anndata" for one in type(value).__mro__)


def read_anndata(adata: Any, key: str | None = None) -> Points:
    """The points of an AnnData object, and its obs_names; `key` is "X", "obsm/NAME", "layers/NAME" or "raw/X"."""
    key = chosen_key(adata, key)
    values = _in_place(_element(adata, key))
    if key == "X" and _are_counts(values):
        warn(
            "X of the AnnData object looks like raw counts, between which distances mean little. Normalise them and "
            "take logarithms first: sc.pp.normalize_total, sc.pp.log1p, sc.pp.pca.",
            GPEWarning,
        )
    names = name_array([str(name) for name in adata.obs_names])
    annotations = FrameAnnotations.of(adata, key)
    return Points(values, names, f"{key} of an AnnData object", annotations, _feature_names(adata, key))


def representation_key(use_rep: str | None) -> str | None:
    """The key of what scanpy calls `use_rep`: "X", or the name of a part of obsm."""
    return use_rep if use_rep in (None, "X") else f"obsm/{use_rep}"


def matrix_in_memory(values: Any) -> Any:
    """A sparse matrix of an object: computed if it is lazy."""
    return values.compute(scheduler="synchronous") if hasattr(values, "dask") else values


def chosen_key(adata: Any, key: str | None) -> str:
    """The key that was given, or where scanpy would look for the points."""
    if key is not None:
        return key
    if _PCA in adata.obsm:
        return f"obsm/{_PCA}"
    if adata.X is None:
        raise ValueError(
            f"X: the AnnData object has no X and no obsm[{_PCA!r}]; its obsm holds {_names(adata.obsm)}. Choose "
            "one with gpe.read_points(adata, use_rep=...)."
        )
    return "X"


def _element(adata: Any, key: str) -> Any:
    """The matrix of an object that a key names."""
    part, _, name = key.partition("/")
    if key == "raw/X" and adata.raw is not None:
        return adata.raw.X
    if key == "X" and adata.X is not None:
        return adata.X
    if part in ("obsm", "layers") and name in getattr(adata, part):
        return getattr(adata, part)[name]
    raise KeyError(
        f"use_rep must be 'X' or a key of obsm, {sorted(adata.obsm)}; got {name or key!r}."
        if part in ("obsm", "X")
        else f"key must be 'X', 'raw/X', 'obsm/NAME' or 'layers/NAME' of the AnnData object; got {key!r}."
    )


def _are_counts(values: Any) -> bool:
    """Whether the first rows hold whole numbers of at least 0 that add up to much."""
    if hasattr(values, "dask"):
        return False  # a lazy matrix is not computed for a hint
    first = values[:_COUNTED_ROWS]
    entries = first.data if hasattr(first, "tocsr") else np.asarray(first)
    if not entries.size or entries.dtype.kind not in "iuf" or not np.isfinite(entries).all():
        return False
    are_whole = entries.min() >= 0 and (entries == np.floor(entries)).all()
    return bool(are_whole and entries.max() > 1 and entries.sum(dtype=np.float64) > _LEAST_COUNT * first.shape[0])


def _feature_names(adata: Any, key: str) -> np.ndarray | None:
    """var_names, if a key names a matrix of these variables."""
    if key.startswith("obsm/"):
        return None
    return name_array([str(name) for name in (adata.raw if key == "raw/X" else adata).var_names])


def _in_place(values: Any) -> Any:
    """A matrix of an object in a form that rows are read from block by block."""
    if hasattr(values, "id") and hasattr(values, "chunks"):  # a dense matrix of a backed file
        values.file.flush()
        return map_or_copy(values, values.file.filename)
    if hasattr(values, "to_memory"):  # a sparse matrix of a backed file, or a lazy table in obsm
        return values.to_memory()
    if hasattr(values, "dask") and hasattr(values._meta, "tocsr"):  # lazy and sparse: three arrays, never dense
        return matrix_in_memory(values).tocsr()
    return np.asarray(values) if isinstance(values, np.ndarray) and not isinstance(values, np.memmap) else values


def _names(part: Any) -> str:
    return first_names(sorted(part)) or "nothing"
