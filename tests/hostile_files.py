"""Make hostile files and read each of them: ``python hostile_files.py FOLDER BYTES`` prints the outcomes as JSON."""

import gzip
import io
import json
import os
import pickle
import resource
import sys
import zipfile
from functools import partial
from pathlib import Path

import numpy as np

NAMED = (
    *("ValueError", "NotFiniteError", "TypeError", "StoreError", "DamageError", "MemoryLimitError", "OSError"),
    "FileNotFoundError",
)
HUGE = 2**60
BOMB = 2**27  # bytes that a small chunk expands to
CASES = {}


def case(name):
    def add(make):
        CASES[name] = make
        return make

    return add


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


# --- .npy -----------------------------------------------------------------------------------------


def npy(path, header, data=b"", version=b"\x01\x00"):
    text = header.encode("latin1") + b"\n"
    size = len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    path.write_bytes(b"\x93NUMPY" + version + size + text + data)


def header(descr="'<f4'", shape="(64, 2)"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"


HEADERS = {
    "npy with 2^60 rows": header(shape=f"({HUGE}, 2)"),
    "npy with more rows than numbers can count": header(shape=f"({2**80}, 2)"),
    "npy with fewer than no rows": header(shape="(-64, 2)"),
    "npy with a shape of words": header(shape="('a', 2)"),
    "npy with truth as a shape": header(shape="(True, True)"),
    "npy of objects": header("'|O'"),
    "npy of texts": header("'<U8'", "(8, 2)"),
    "npy of dates": header("'<M8[s]'", "(32, 2)"),
    "npy of complex numbers": header("'<c8'", "(32, 2)"),
    "npy of structures": header("[('a', '<f4'), ('b', '<f4')]", "(64,)"),
    "npy with structures in structures": header("[('a', " * 60 + "'<f4'" + ")]" * 60),
    "npy with a nested header": "(" * 4000 + ")" * 4000,
    "npy whose header is code": "__import__('os').mkdir('trapped')",
    "npy without a header": "",
    "npy without keys": "{}",
    "npy with one dimension": header(shape="(128,)"),
    "npy with 40 dimensions": header(shape=str((1,) * 40)),
}
for name, text in HEADERS.items():
    CASES[name] = lambda path, text=text: npy(path / "x.npy", text, bytes(512))


@case("npy with a header of 16 MB")
def _(path):
    npy(path / "x.npy", header() + " " * 2**24, bytes(512), b"\x02\x00")


@case("npy that is a pickle")
def _(path):
    (path / "x.npy").write_bytes(pickle.dumps(Trap()))


@case("npy of objects with a pickle")
def _(path):
    npy(path / "x.npy", header("'|O'", "(1,)"), pickle.dumps(Trap()))


@case("npy that is an npz")
def _(path):
    np.savez(path / "y.npz", X=np.ones((64, 2)))
    (path / "y.npz").rename(path / "x.npy")


@case("npy with NaN and infinity")
def _(path):
    np.save(path / "x.npy", np.full((64, 2), [np.nan, np.inf]))


# --- zarr -----------------------------------------------------------------------------------------


def points(rows=64):
    return np.random.default_rng(0).normal(size=(rows, 2)).astype(np.float32)


def zarr_array(path, change=None, zarr_format=3, **options):
    """Write a sound array, then change its metadata."""
    import zarr

    array = zarr.create_array(
        str(path / "x.zarr"), shape=(64, 2), chunks=(16, 2), dtype="f4", zarr_format=zarr_format, **options
    )
    array[:] = points()
    file = path / "x.zarr" / ("zarr.json" if zarr_format == 3 else ".zarray")
    if change is not None:
        described = json.loads(file.read_text())
        described = change(described) or described
        file.write_text(described if isinstance(described, str) else json.dumps(described))
    return path / "x.zarr"


def put(*keys, value):
    def change(described):
        for key in keys[:-1]:
            described = described[key]
        described[keys[-1]] = value

    return change


def both(*changes):
    def change(described):
        for one in changes:
            one(described)

    return change


GRID = ("chunk_grid", "configuration", "chunk_shape")
METADATA = {
    "zarr with chunks of 2^60": both(put("shape", value=[HUGE, 2]), put(*GRID, value=[HUGE, 2])),
    "zarr with large chunks": put(*GRID, value=[2**40, 2]),
    "zarr with 2^60 rows and one feature less": put("shape", value=[HUGE]),
    "zarr with chunks of nothing": put(*GRID, value=[0, 0]),
    "zarr with chunks below nothing": put(*GRID, value=[-16, 2]),
    "zarr with chunks of other dimensions": put(*GRID, value=[16]),
    "zarr with chunks of words": put(*GRID, value=["a", "b"]),
    "zarr with fewer than no rows": put("shape", value=[-64, 2]),
    "zarr with a shape of words": put("shape", value="many"),
    "zarr without a shape": lambda described: described.pop("shape") and None,
    "zarr with an unknown type": put("data_type", value="object"),
    "zarr of texts": put("data_type", value="string"),
    "zarr of complex numbers": put("data_type", value="complex64"),
    "zarr with an unknown codec": put("codecs", value=[{"name": "bytes"}, {"name": "pickle"}]),
    "zarr with codecs of words": put("codecs", value="bytes"),
    "zarr without codecs": put("codecs", value=[]),
    "zarr with two compressors": put("codecs", value=[{"name": "bytes"}, *[{"name": "zstd"}] * 2]),
    "zarr with wide numbers in narrow chunks": put("data_type", value="float64"),
    "zarr with NaN as its format": put("zarr_format", value=float("nan")),
    "zarr with NaN as its shape": put("shape", value=[float("nan"), 2]),
    "zarr whose metadata is a list": lambda described: "[]",
    "zarr whose metadata is empty": lambda described: " ",
    "zarr with nested metadata": lambda described: '{"a":' * 100_000,
    "zarr with nested attributes": lambda described: json.dumps(described)[:-1] + ', "x": ' + "[" * 100_000,
}
for name, change in METADATA.items():
    CASES[name] = lambda path, change=change: zarr_array(path, change) and None


@case("zarr of format 2 with pickles")
def _(path):
    chunk = zarr_array(path, put("filters", value=[{"id": "pickle", "protocol": 5}]), zarr_format=2) / "0.0"
    chunk.write_bytes(pickle.dumps(Trap()))


@case("zarr of format 2 with objects")
def _(path):
    zarr_array(path, both(put("dtype", value="|O"), put("filters", value=[{"id": "pickle"}])), zarr_format=2)


@case("zarr with an empty chunk")
def _(path):
    (zarr_array(path) / "c/0/0").write_bytes(b"")


@case("zarr with NaN")
def _(path):
    import zarr

    zarr.open_array(str(zarr_array(path)), mode="r+")[3] = np.nan


@case("zarr with a sparse matrix of 2^60 rows")
def _(path):
    import zarr

    group = zarr.open_group(str(path / "x.zarr"), mode="w")
    group.create_group("obs")
    sparse = group.create_group("X")
    sparse.attrs.update({"encoding-type": "csr_matrix", "shape": [HUGE, 2]})
    for name in ("data", "indices", "indptr"):
        sparse.create_array(name, shape=(HUGE,), chunks=(2**20,), dtype="i8")


# --- .h5ad ----------------------------------------------------------------------------------------


def h5ad(path, make):
    import h5py

    with h5py.File(path / "x.h5ad", "w") as file:
        make(file)


def damaged_chunk(file):
    data = file.create_dataset("X", (64, 2), "f4", chunks=(16, 2), compression="gzip")
    data[:] = 1
    data.id.write_direct_chunk((0, 0), b"damaged")


H5AD = {
    "h5ad with 2^60 rows": lambda file: file.create_dataset("X", (HUGE, 2), "f4", chunks=(1024, 2), compression="gzip"),
    "h5ad with 2^31 columns": lambda file: file.create_dataset("X", (2**20, 2**31), "f4", chunks=(1024, 1024)),
    "h5ad with a damaged chunk": damaged_chunk,
    "h5ad of texts": lambda file: file.create_dataset("X", data=[["a", "b"]] * 64),
    "h5ad of references": lambda file: file.create_dataset("X", (64, 2), dtype=__import__("h5py").ref_dtype),
    "h5ad of structures": lambda file: file.create_dataset("X", (64, 2), [("a", "f4"), ("b", "f4")]),
    "h5ad without a shape": lambda file: file.create_dataset("X", data=__import__("h5py").Empty("f4")),
    "h5ad whose X is a type": lambda file: file.__setitem__("X", np.dtype("f4")),
    "h5ad with one number": lambda file: file.create_dataset("X", data=1.0),
    "h5ad with NaN": lambda file: file.create_dataset("X", data=np.full((64, 2), np.nan)),
}
for name, make in H5AD.items():
    CASES[name] = lambda path, make=make: h5ad(path, make)


def sparse(file, change):
    group = file.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": (64, 64)})
    group["data"], group["indices"], group["indptr"] = np.ones(64), np.arange(64), np.arange(65)
    change(group)


def replaced(name, values):
    def change(group):
        del group[name]
        if isinstance(values, tuple):
            group.create_dataset(name, values, "i8", chunks=(2**20,))
        elif values is not None:
            group[name] = values

    return change


SPARSE = {
    "h5ad with sparse rows beyond the end": replaced("indptr", np.arange(65)[::-1]),
    "h5ad with sparse columns beyond the end": replaced("indices", np.full(64, 2**40)),
    "h5ad with sparse columns below 0": replaced("indices", np.full(64, -1)),
    "h5ad with 2^60 sparse numbers": replaced("data", (HUGE,)),
    "h5ad without sparse columns": replaced("indices", None),
    "h5ad with sparse texts": replaced("data", ["a"] * 64),
    "h5ad with NaN as sparse columns": replaced("indices", np.full(64, np.nan)),
    "h5ad with a sparse shape of 2^60": lambda group: group.attrs.update({"shape": (HUGE, 2)}),
    "h5ad with a sparse shape of NaN": lambda group: group.attrs.update({"shape": (np.nan, 64)}),
    "h5ad with a sparse shape of words": lambda group: group.attrs.update({"shape": "many"}),
    "h5ad with sparse numbers and no shape": lambda group: group.attrs.pop("shape"),
}
for name, change in SPARSE.items():
    CASES[name] = lambda path, change=change: h5ad(path, partial(sparse, change=change))


def named(file, make):
    file["X"] = points()
    file.create_group("obs").attrs["_index"] = "n"
    make(file["obs"])


NAMES = {
    "h5ad with 2^60 names": lambda obs: obs.create_dataset("n", (HUGE,), "S8", chunks=(2**20,)),
    "h5ad with names of 1 GB": lambda obs: obs.create_dataset("n", (2**14,), f"S{2**26}", chunks=(1,)),
    "h5ad with names that are a group": lambda obs: obs.create_group("n"),
    "h5ad with other names than rows": lambda obs: obs.create_dataset("n", data=["a"] * 63),
}
for name, make in NAMES.items():
    CASES[name] = lambda path, make=make: h5ad(path, partial(named, make=make))


@case("h5ad that is not HDF5")
def _(path):
    (path / "x.h5ad").write_bytes(pickle.dumps(Trap()))


@case("h5ad that ends early")
def _(path):
    h5ad(path, lambda file: file.create_dataset("X", data=np.ones((2**16, 2))))
    os.truncate(path / "x.h5ad", 2**16)


# --- .parquet -------------------------------------------------------------------------------------


def parquet(path, columns, metadata=None, **options):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(columns).replace_schema_metadata(metadata and {"pandas": metadata})
    pyarrow.parquet.write_table(table, path / "x.parquet", **options)


@case("parquet with a name of 16 MB for each row")
def _(path):
    import pyarrow

    names = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(2**14, np.int32)), ["x" * 2**24])
    parquet(path, {"a": np.arange(2**14), "n": names}, compression="zstd")


COLUMNS = {
    "parquet of texts": ["x"] * 64,
    "parquet of structures": [{"b": {"c": 1.0}}] * 64,
    "parquet of lists of lists": [[[1.0, 2.0]]] * 64,
    "parquet of lists of texts": [["x", "y"]] * 64,
    "parquet with NaN": np.full(64, np.nan),
    "parquet without rows": np.ones(0),
}
for name, column in COLUMNS.items():
    CASES[name] = lambda path, column=column: parquet(path, {"a": column})
PANDAS = {
    "parquet with another index than its columns": '{"index_columns": ["nothing"], "columns": []}',
    "parquet with nested metadata of pandas": '{"a":' * 100_000,
    "parquet with metadata of pandas that is not an object": "[1]",
}
for name, metadata in PANDAS.items():
    CASES[name] = lambda path, metadata=metadata: parquet(path, {"a": np.ones(64)}, metadata)


@case("parquet with two columns of one name")
def _(path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_arrays([pyarrow.array([1.0] * 64)] * 2, names=["a", "a"])
    pyarrow.parquet.write_table(table, path / "x.parquet")


@case("parquet that is something else")
def _(path):
    (path / "x.parquet").write_bytes(pickle.dumps(Trap()))


@case("parquet that ends early")
def _(path):
    parquet(path, {"a": np.random.default_rng(0).normal(size=4096)})
    os.truncate(path / "x.parquet", 4096)


@case("parquet with a damaged page")
def _(path):
    parquet(path, {"a": np.random.default_rng(0).normal(size=4096)})
    data = bytearray((path / "x.parquet").read_bytes())
    data[4:2000] = bytes(1996)
    (path / "x.parquet").write_bytes(data)


# --- .csv -----------------------------------------------------------------------------------------

TEXTS = {
    "csv of one endless line": b"1," * 3_000_000,
    "csv with a quote that never ends": b'a,b\n"1,2\n' + b"3,4\n" * 3_000_000,
    "csv with a line of 16 MB": b"a,b\n1,2\n" + b"1" * 2**24 + b",2\n",
    "csv with a name of 200 kB": b"x" * 200_000 + b",b\n1,2\n",
    "csv of zeros": bytes(2**16),
    "csv in another encoding": "a,b\n1,2\n3,4\n".encode("utf-16"),
    "csv with another number of cells": b"a,b\n1,2\n3,4,5\n",
    "csv with a formula": b"a,b\n=cmd|' /C calc'!A0,2\n1,2\n",
    "csv with words late": b"a,b\n" + b"1,2\n" * 300_000 + b"x,y\n",
    "csv with NaN": b"a,b\nnan,1\n2,inf\n",
    "csv that is a pickle": pickle.dumps(Trap()),
    "csv with too large numbers": b"a,b\n1e999,1\n2,3\n",
    "csv with nothing in it": b"",
    "csv of white space": b" \n \n",
    "csv with a long name among short ones": b"n,a\n" + b"x" * 2**22 + b",1\n" + b"y,2\n" * 2**16,
}
for name, data in TEXTS.items():
    CASES[name] = lambda path, data=data: (path / "x.csv").write_bytes(data) and None


@case("csv in a gz that expands to one line")
def _(path):
    (path / "x.csv.gz").write_bytes(gzip.compress(bytes(BOMB // 16), 1) * 16)


@case("csv in a gz that is damaged")
def _(path):
    (path / "x.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 1000)[:40])


# --- .npz of distances ----------------------------------------------------------------------------


def npz(path, **parts):
    whole = {
        "format": b"csr",
        "shape": (64, 64),
        "data": np.ones(64),
        "indices": np.arange(64),
        "indptr": np.arange(65),
    }
    np.savez(path / "x.npz", **(whole | parts))


PARTS = {
    "npz with rows beyond the end": {"indptr": np.arange(65)[::-1]},
    "npz with columns beyond the end": {"indices": np.full(64, 2**40)},
    "npz with columns below 0 by column": {"format": b"csc", "indices": np.full(64, -5)},
    "npz in an unknown format": {"format": b"__import__('os')"},
    "npz with a shape of 2^60": {"shape": (HUGE, HUGE)},
    "npz with a shape of NaN": {"shape": (np.nan, 64.0)},
    "npz with texts": {"data": ["a"] * 64},
    "npz with blocks": {"format": b"bsr", "data": np.ones((64, 1, 1))},
}
for name, parts in PARTS.items():
    CASES[name] = lambda path, parts=parts: npz(path, **parts)


@case("npz with a pickle")
def _(path):
    npz(path, data=np.array([Trap()] * 64, dtype=object))


@case("npz that expands")
def _(path):
    npz(path)
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    with zipfile.ZipFile(path / "x.npz") as whole, zipfile.ZipFile(path / "y.npz", "w") as crafted:
        for part in whole.namelist():
            crafted.writestr(part, content.getvalue() if part == "data.npy" else whole.read(part))
    (path / "y.npz").rename(path / "x.npz")


@case("npz that is something else")
def _(path):
    (path / "x.npz").write_bytes(b"PK\x03\x04" + bytes(100))


# --- the process ----------------------------------------------------------------------------------


def read(path):
    """Read all rows of what a case has made, as embed does before any work."""
    from scalable_gpe.io.files import read_distances, read_points
    from scalable_gpe.io.rows import open_rows

    (file,) = path.iterdir()
    if file.suffix == ".npz":
        return read_distances(str(file)).shape[0]
    index = "n" if file.suffix in (".parquet", ".csv") and first_name(file) == b"n" else None
    rows = open_rows(read_points(file, index=index))
    for start in range(0, rows.n_rows, 65_536):
        rows.read(start, min(rows.n_rows, start + 65_536))
    return rows.n_rows


def first_name(file):
    if file.suffix == ".csv":
        return file.read_bytes()[:2].rstrip(b",")
    return b"n" if "16 MB" in file.parent.name else b""


def sound(path):
    """Sound files of each kind, which must be read."""
    import h5py
    import pandas
    import zarr

    for kind in ("npy", "zarr", "zarr2", "shards", "h5ad", "parquet", "csv"):
        (path / kind).mkdir(parents=True)
    np.save(path / "npy/x.npy", points())
    zarr_array(path / "zarr")
    zarr_array(path / "zarr2", zarr_format=2)
    zarr_array(path / "shards", shards=(64, 2), compressors=zarr.codecs.BloscCodec())
    with h5py.File(path / "h5ad/x.h5ad", "w") as file:
        file.create_dataset("X", data=points(), chunks=(16, 2), compression="gzip")
    frame = pandas.DataFrame(points(), columns=["a", "b"])
    frame.to_parquet(path / "parquet/x.parquet")
    frame.to_csv(path / "csv/x.csv", index=False)
    return {folder.name: read(folder) for folder in path.iterdir()}


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main(folder, n_bytes):
    os.chdir(folder)
    outcome = {"sound": sound(Path("sound")), "cases": {}}
    for name, make in CASES.items():
        Path("cases", name.replace("/", "-")).mkdir(parents=True)
        make(Path("cases", name))
    before = sorted(str(path) for path in Path().rglob("*"))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()  # making cases maps memory too
    resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, used + n_bytes))
    for name in CASES:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        start = resident()
        try:
            text = f"read {read(Path('cases', name))} rows"
            error = "nothing"
        except Exception as raised:
            error, text = type(raised).__name__, str(raised)
        outcome["cases"][name] = {"error": error, "text": text[:400], "grown": high_water() - start}
    outcome["trapped"] = any(path.name == "trapped" for path in Path().rglob("*"))
    outcome["written"] = sorted({str(path) for path in Path().rglob("*")} - set(before))
    print(json.dumps(outcome))


def high_water():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
