"""Columns of obs: numbers as they are, text and categories as labels."""

from typing import Any

import numpy as np

from scalable_gpe.errors import Message
from scalable_gpe.io.anndata_parts import checked
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import first_names

MISSING = "missing"  # the label of rows without one


def obs_values(file: Any, column: str | None, path: str) -> np.ndarray:
    """A column of obs of an open file or group."""
    anndata = import_optional("anndata", "anndata", "an .h5ad file")
    obs = file.get("obs", {})
    if not hasattr(obs, "keys") or column is None or column not in obs:
        names = first_names(obs) if hasattr(obs, "keys") else "none"
        raise ValueError(Message(f"`column=` must name one of obs of {path!r}: {names}; {got_column(column)}."))
    return plain_values(anndata.io.read_elem(checked(obs[column])))


def plain_values(values: Any) -> np.ndarray:
    """A column of pandas: numbers as they are, text and categories as labels."""
    import pandas

    series = pandas.Series(values)
    if pandas.api.types.is_numeric_dtype(series.dtype):
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan) if series.hasnans else series)
    return np.asarray(series.astype(object).where(series.notna(), MISSING)).astype(str)


def got_column(column: str | None) -> str:
    """The end of a message about a column."""
    return "none was named" if column is None else f"got {column!r}"
