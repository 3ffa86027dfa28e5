"""The points of a file: an array, the names of its rows, and the temporary copy of what cannot be read in place."""

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import psutil

from scalable_gpe import checks

if TYPE_CHECKING:
    from scalable_gpe.io.labels import Annotations

_PADDED = 2**28  # bytes of names that are never too many
BATCH_ROWS = 65_536  # rows of a file that are converted at once


@dataclass(frozen=True)
class Points:
    """The points of a file, or of an AnnData object.

    Attributes
    ----------
    values : array (N, d)
        numpy, memory-mapped, zarr or scipy sparse.
    names : array of str or int, or None
        Labels of the rows, where the file has any; whole numbers stay so.
    source : str
        A description of what was read.
    annotations : Annotations or None
        obs and var of an AnnData input, for the export of its embedding.
    feature_names : array of str or None
        Labels of the columns, where the file has any.
    remarks : tuple of str
        Warnings about what was read, which `embed` gives.
    """

    values: Any
    names: np.ndarray | None
    source: str
    annotations: "Annotations | None" = field(default=None, repr=False)
    feature_names: np.ndarray | None = field(default=None, repr=False)
    remarks: tuple[str, ...] = field(default=(), repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """N x d."""
        return tuple(self.values.shape)


def check_memory(n_bytes: int, what: str) -> None:
    """Refuse what does not fit in memory, before it is read: a small file can claim any size."""
    available = psutil.virtual_memory().available
    if n_bytes > available:
        raise ValueError(f"X: {what} needs {n_bytes:,} bytes of memory, {available:,} are available. Is it sound?")


def check_disk(n_bytes: int) -> None:
    """Refuse a copy that the temporary folder has no room for."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise ValueError(
            f"X: the temporary copy needs {n_bytes:,} bytes, {folder!r} has {free:,}. Set TMPDIR to a folder "
            "with more room, if this size is right."
        )


def name_array(names: list[str]) -> np.ndarray:
    """Names of rows as one array, in which each takes the room of the longest."""
    padded = 4 * len(names) * max(map(len, names), default=0)
    if padded > max(_PADDED, 64 * 4 * sum(map(len, names))):
        raise ValueError(f"X: a row has a name of {max(map(len, names)):,} characters. Shorten it.")
    return np.array(names)


def as_whole_numbers(names: np.ndarray) -> np.ndarray:
    """Names that are all whole numbers, as they are printed, as such; others as they are.

    Examples
    --------
    >>> as_whole_numbers(np.array(["7", "12"])), as_whole_numbers(np.array(["007", "12"]))
    (array([ 7, 12]), array(['007', '12'], dtype='<U3'))
    """
    try:
        numbers = names.astype(np.int64)
        return numbers if np.array_equal(numbers.astype(names.dtype), names) else names
    except (ValueError, OverflowError):
        return names


def spool(batches: Iterable[np.ndarray], n_features: int, dtype: npt.DTypeLike) -> np.ndarray:
    """Copy batches of rows to an unnamed temporary file and map it; the file is deleted with the array."""
    n_rows = 0
    file = tempfile.TemporaryFile(prefix="scalable-gpe-")  # noqa: SIM115
    for batch in batches:
        checks.check_whole(batch)
        _append(np.ascontiguousarray(batch, dtype), file)
        n_rows, n_features = n_rows + len(batch), batch.shape[1]
    if not n_rows:
        return np.empty((0, n_features), dtype)
    with file:  # the map keeps the file open
        return np.memmap(file, dtype=dtype, mode="r", shape=(n_rows, n_features))


def _append(batch: np.ndarray, file: IO[bytes]) -> None:
    try:
        batch.tofile(file)
        file.flush()
    except OSError as error:
        raise OSError(
            f"the temporary copy of X could not be written to {tempfile.gettempdir()!r}: {error.strerror or error}."
            " Set TMPDIR to a folder with more room."
        ) from error


def narrowest_float(dtypes: Iterable[npt.DTypeLike]) -> type[np.floating[Any]]:
    """Return float32 where it holds all values of these types, else float64.

    Examples
    --------
    >>> narrowest_float(["int16", "float32"]).__name__, narrowest_float(["int32"]).__name__
    ('float32', 'float64')
    """
    return np.float32 if all(np.can_cast(np.dtype(dtype), np.float32) for dtype in dtypes) else np.float64


def first_line(error: BaseException) -> str:
    """The first line of what another library says of an error."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def first_names(names: Iterable[str], most: int = 12) -> str:
    """List names for an error message, at most so many.

    Examples
    --------
    >>> first_names("abc", 2)
    "'a', 'b' and 1 more"
    """
    return listed(map(repr, names), most)


def listed(texts: Iterable[str], most: int = 12) -> str:
    """Join texts for an error message, at most so many."""
    texts = list(texts)
    rest = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + rest


# --- optional -------------------------------------------------------------------------------------


def import_optional(package: str, extra: str, what: str) -> Any:
    """Import a package, or say which extra of this library installs it."""
    try:
        return import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        raise ImportError(f'{what} needs {name}; install it with: pip install "scalable-gpe[{extra}]"') from None
