"""Files for other tools: .npy, tables and AnnData (.h5ad, .zarr), written block by block and replaced only whole."""

import contextlib
import itertools
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.io.labels import Annotations
from scalable_gpe.io.points import import_optional
from scalable_gpe.storage.blocks import ranges

TABLES = (".npy", ".parquet", ".csv")  # one matrix
FORMATS = (".h5ad", ".zarr", *TABLES)
RowLabels = tuple[
    str, np.ndarray
]  # the column of a table that says which row is which: its title, and names or numbers
_CHUNK = 2**22  # entries of one chunk of a zarr array: few files
_TEXT_ROWS = 2**11  # rows that are written as text at a time: a number takes 128 bytes until then


@dataclass(frozen=True)
class DenseBlocks:
    """A float32 matrix that comes in blocks of rows."""

    shape: tuple[int, int]
    blocks: Iterable[np.ndarray]


@dataclass(frozen=True)
class CsrPieces:
    """A square CSR matrix: its row pointers, and its columns and values in pieces, in order."""

    indptr: np.ndarray
    pieces: Iterable[tuple[np.ndarray, np.ndarray]]
    dtype: npt.DTypeLike = np.float32

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return int(self.indptr[-1])

    def fill(self, columns: Any, values: Any) -> None:
        """Write columns and values into two arrays."""
        start = 0
        for some_columns, some_values in self.pieces:
            stop = start + len(some_columns)
            columns[start:stop], values[start:stop] = some_columns, some_values
            start = stop


# --- the target -----------------------------------------------------------------------------------


def check_installed(ending: str) -> None:
    """Check that the packages of a format are installed."""
    if ending in (".csv", ".parquet"):
        import_optional("pyarrow" if ending == ".parquet" else "pandas", "tables", ending)
    elif ending in (".h5ad", ".zarr"):
        import_optional("anndata", "anndata", "AnnData")


def check_replaceable(target: Path, *, overwrite: bool) -> None:
    """Refuse to overwrite without `overwrite`, and to replace a folder that is not AnnData: it may be a run."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(
            f"{str(target)!r} exists already, and what is written holds results alone. Choose another name, or "
            "replace it with overwrite=True."
        )
    if target.is_dir() and not _is_anndata(target):
        raise FileExistsError(f"path {str(target)!r} is a folder that holds something else. Choose another name.")


def _is_anndata(folder: Path) -> bool:
    for name in ("zarr.json", ".zattrs"):
        if (folder / name).exists():
            found = json.loads((folder / name).read_text(encoding="utf-8"))
            if found.get("attributes", found).get("encoding-type") == "anndata":
                return True
    return False


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a path to write to; what is written there replaces the target once it is complete."""
    unfinished = _beside(target)
    try:
        yield unfinished
        if not target.is_dir():
            os.replace(unfinished, target)
            return
        old = _beside(target)
        os.rename(target, old)  # a folder is replaced only by two renames
        try:
            os.rename(unfinished, target)
        except BaseException:
            os.rename(old, target)
            raise
        _remove(old)
    finally:
        _remove(unfinished)


def _beside(target: Path) -> Path:
    """A name in the folder of a target that no other export uses."""
    return target.with_name(f".unfinished-{uuid.uuid4().hex[:12]}{target.suffix}")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# --- arrays and tables ----------------------------------------------------------------------------


def component_names(n_components: int) -> list[str]:
    """Names of the columns of an embedding.

    Examples
    --------
    >>> component_names(2)
    ['gpe_1', 'gpe_2']
    """
    return [f"gpe_{number}" for number in range(1, n_components + 1)]


def write_npy(path: Path, matrix: DenseBlocks) -> None:
    """Write a matrix as a .npy file."""
    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": matrix.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in matrix.blocks:
            file.write(np.ascontiguousarray(block, "<f4").tobytes())


def write_table(path: Path, matrix: DenseBlocks, columns: Sequence[str], labels: RowLabels | None) -> None:
    """Write a matrix as columns of a .csv or .parquet file, with the names (or numbers) of the rows as its index.

    Numbers read back as the same float32.
    """
    frames, index = _frames(matrix, columns, labels), labels is not None
    if path.suffix.lower() == ".csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            for number, frame in enumerate(frames):
                frame.to_csv(file, header=number == 0, index=index, chunksize=_TEXT_ROWS, lineterminator="\n")
        return
    import pyarrow
    import pyarrow.parquet

    tables = (pyarrow.Table.from_pandas(frame, preserve_index=index) for frame in frames)
    first = next(tables)
    with pyarrow.parquet.ParquetWriter(path, first.schema) as writer:
        for table in itertools.chain([first], tables):
            writer.write_table(table)


def _frames(matrix: DenseBlocks, columns: Sequence[str], labels: RowLabels | None) -> Iterator[Any]:
    import pandas

    start = 0
    for block in matrix.blocks:
        stop = start + len(block)
        index = None if labels is None else pandas.Index(labels[1][start:stop], name=labels[0])
        yield pandas.DataFrame(np.asarray(block, np.float32), index, columns)
        start = stop


# --- AnnData --------------------------------------------------------------------------------------


def write_anndata(
    path: Path,
    obs_names: np.ndarray,
    *,
    obs: Mapping[str, np.ndarray],
    obsm: Mapping[str, DenseBlocks],
    obsp: Mapping[str, CsrPieces],
    uns: Mapping[str, object],
    annotations: Annotations | None,
) -> None:
    """Write an AnnData file: its tables by anndata itself, the matrices block by block in its format.

    `annotations` are obs and var of the input, of which the columns `obs` replace some. Part by part: writing one
    AnnData object would warn of names that are not unique, and store `raw` as a null, an encoding that older readers do
    not know.
    """
    with _open_new(path) as file:
        _write_tables(file, obs_names, obs, annotations)
        _write_parts(file, uns)
        for name, matrix in obsm.items():
            _write_dense(file["obsm"], name, matrix)
        for name, pieces in obsp.items():
            _write_csr(file["obsp"], name, pieces)


@contextlib.contextmanager
def _open_new(path: Path) -> Iterator[Any]:
    if path.suffix.lower() == ".h5ad":
        import h5py

        with h5py.File(path, "w") as file:
            yield file
    else:
        import anndata
        import zarr

        yield zarr.open_group(str(path), mode="w", zarr_format=anndata.settings.zarr_write_format)


def _write_tables(
    file: Any, obs_names: np.ndarray, columns: Mapping[str, np.ndarray], annotations: Annotations | None
) -> None:
    import pandas
    from anndata.io import write_elem

    if annotations is not None:
        annotations.write(file)
    for name, labels in (("obs", obs_names), ("var", np.empty(0, str))):
        if name not in file:
            write_elem(file, name, pandas.DataFrame(index=pandas.Index(labels.astype(object), dtype=object)))
    obs = file["obs"]
    for name, values in columns.items():
        write_elem(obs, name, values)
    others = [str(name) for name in obs.attrs["column-order"] if name not in columns]
    obs.attrs["column-order"] = [*others, *columns]


def _write_parts(file: Any, uns: Mapping[str, object]) -> None:
    from anndata.io import write_elem

    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for name in ("obsm", "obsp", "varm", "varp", "layers"):
        write_elem(file, name, {})
    write_elem(file, "uns", dict(uns))


def _write_dense(group: Any, name: str, matrix: DenseBlocks) -> None:
    out = _new_array(group, name, matrix.shape, np.float32)
    start = 0
    for block in matrix.blocks:
        out[start : start + len(block)] = block
        start += len(block)


def _write_csr(parent: Any, name: str, matrix: CsrPieces) -> None:
    """Write a CSR matrix piece by piece.

    Row pointers and columns have one type, int32 while it can count the entries: scipy's conversions, on which scanpy
    relies, fail on matrices that anndata reads with two types.
    """
    n_rows, nnz = len(matrix.indptr) - 1, matrix.nnz
    counts = np.int32 if nnz < 2**31 else np.int64
    group = parent.create_group(name)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n_rows, n_rows]})
    pointers = _new_array(group, "indptr", matrix.indptr.shape, counts)
    for start, stop in ranges(n_rows + 1, _CHUNK):
        pointers[start:stop] = matrix.indptr[start:stop].astype(counts)
    matrix.fill(_new_array(group, "indices", (nnz,), counts), _new_array(group, "data", (nnz,), matrix.dtype))


def _new_array(group: Any, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    """Make an empty array of an .h5ad file (in one piece) or of a zarr group (in large chunks)."""
    if hasattr(group, "create_array"):
        chunk_rows = max(1, min(_CHUNK // int(np.prod(shape[1:], dtype=np.int64)), shape[0]))
        made = group.create_array(name, shape=shape, dtype=dtype, chunks=(chunk_rows, *shape[1:]))
    else:
        made = group.create_dataset(name, shape=shape, dtype=dtype)
    made.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    return made
