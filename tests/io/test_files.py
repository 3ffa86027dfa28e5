"""Files of points: each kind gives the rows and names that were written, in batches, and executes no code."""

import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import scalable_gpe as gpe
from scalable_gpe.io import table_files
from scalable_gpe.io.columns import read_row_values
from scalable_gpe.io.files import read_distances, read_points
from scalable_gpe.io.rows import open_rows

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
OPTIONS = {"n_neighbors": 6, "n_components": 3, "power": 4}
NAMES = [f"cell {i} é" for i in range(200)]


@pytest.fixture(scope="module")
def X():
    """Whole numbers in float32: every type below can hold them."""
    return np.random.default_rng(0).integers(0, 100, (200, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def frame(X):
    return pd.DataFrame(X, index=pd.Index(NAMES, dtype=object, name="name"), columns=["a", "b", "c"])


@pytest.fixture(scope="module")
def cells(X, tmp_path_factory):
    """An AnnData file with points, a sparse matrix and columns to colour by."""
    anndata = pytest.importorskip("anndata")
    folder = tmp_path_factory.mktemp("cells")
    kinds = pd.Categorical.from_codes(np.arange(200) % 3 - 1, pd.Index(["left", "right"], dtype=object))
    with pd.option_context("future.infer_string", False):
        obs = pd.DataFrame({"kind": kinds, "size": X[:, 0]}, index=pd.Index(NAMES, dtype=object))
        adata = anndata.AnnData(X=sp.csr_matrix(X), obs=obs)
        adata.obsm["X_pca"] = X
        adata.obsp["distances"] = sp.random(200, 200, 0.05, "csr", random_state=0)
        adata.write_h5ad(folder / "cells.h5ad")
        adata.write_h5ad(folder / "packed.h5ad", compression="gzip")
        with anndata.settings.override(zarr_write_format=2):
            adata.write_zarr(folder / "cells.zarr")
    return folder


def rows_of(points):
    rows = open_rows(points)
    return rows.read(0, rows.n_rows)


def same_as(points, X, names):
    np.testing.assert_array_equal(rows_of(points), X)
    assert (None if points.names is None else points.names.tolist()) == names


def test_csv(frame, X, tmp_path):
    pytest.importorskip("pyarrow")
    frame.to_csv(tmp_path / "t.csv")
    same_as(read_points(tmp_path / "t.csv", index="name"), X, NAMES)
    frame.rename_axis(None).to_csv(tmp_path / "unnamed.csv")  # what pandas writes most often
    same_as(read_points(tmp_path / "unnamed.csv"), X, NAMES)
    frame.to_csv(tmp_path / "t.tsv", sep="\t", index=False)
    same_as(read_points(tmp_path / "t.tsv"), X, None)
    frame.to_csv(tmp_path / "t.csv.gz", sep=";")
    same_as(read_points(tmp_path / "t.csv.gz", index="name", sep=";"), X, NAMES)
    np.savetxt(tmp_path / "plain.csv", X, delimiter=",")
    same_as(read_points(tmp_path / "plain.csv"), X, None)
    quoted = tmp_path / "quoted.csv"
    quoted.write_text('\ufeff"name","a,b","c"\r\n"x, y",1,2.5\r\nz,3,4\r\n', encoding="utf-8")
    same_as(read_points(quoted, index="name"), np.float32([[1, 2.5], [3, 4]]), ["x, y", "z"])


def test_a_number_late_in_a_csv_may_be_of_another_type(tmp_path):
    """The first block holds whole numbers only; guessing types from it would refuse the rest."""
    pytest.importorskip("pyarrow")
    path = tmp_path / "long.csv"
    path.write_text("a,b\n" + "1,2\n" * 3_000_000 + "0.5,1e3\n", encoding="ascii")
    points = read_points(path)
    assert points.shape == (3_000_001, 2)
    assert points.values[-1].tolist() == [0.5, 1000.0]
    assert isinstance(points.values, np.memmap)


def test_parquet(frame, X, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(table_files, "BATCH_ROWS", 64)  # several batches
    frame.to_parquet(tmp_path / "t.parquet")
    points = read_points(tmp_path / "t.parquet")
    same_as(points, X, NAMES)
    assert points.values.dtype == np.float32
    frame.astype("float64").reset_index().to_parquet(tmp_path / "wide.parquet")
    assert read_points(tmp_path / "wide.parquet", index="name").values.dtype == np.float64
    same_as(read_points(tmp_path / "wide.parquet", index="name"), X, NAMES)
    folder = tmp_path / "many.parquet"
    folder.mkdir()
    for part, rows in enumerate(np.array_split(np.arange(200), 3)):
        frame.iloc[rows].to_parquet(folder / f"part-{part}.parquet")
    same_as(read_points(folder), X, NAMES)
    pd.DataFrame(X).rename(columns=str).to_parquet(tmp_path / "counted.parquet")
    same_as(read_points(tmp_path / "counted.parquet"), X, None)


def test_parquet_with_lists(X, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(table_files, "BATCH_ROWS", 64)
    table = pd.DataFrame({"id": [f"t{i}" for i in range(200)], "vector": list(X), "other": 1.0})
    table.to_parquet(tmp_path / "lists.parquet")
    same_as(read_points(tmp_path / "lists.parquet", key="vector", index="id"), X, table["id"].tolist())
    table[["id", "vector"]].to_parquet(tmp_path / "only.parquet")
    same_as(read_points(tmp_path / "only.parquet"), X, None)
    table["vector"] = [row[: 3 - (i == 150)] for i, row in enumerate(X)]
    table.to_parquet(tmp_path / "ragged.parquet")
    with pytest.raises(ValueError, match="lists of one length"):
        read_points(tmp_path / "ragged.parquet", key="vector")
    with pytest.raises(ValueError, match="column of lists"):
        read_points(tmp_path / "ragged.parquet", key="id")


@pytest.mark.parametrize("name", ["cells.h5ad", "packed.h5ad", "cells.zarr"])
def test_anndata(cells, X, name):
    points = read_points(cells / name)
    same_as(points, X, NAMES)
    assert points.source.startswith("obsm/X_pca of")
    sparse = read_points(cells / name, key="X")
    same_as(sparse, X, NAMES)
    assert sp.issparse(sparse.values)
    with pytest.raises(ValueError, match=r"does not hold 'obsm/X_umap'; it has 'X', 'obsm/X_pca'"):
        read_points(cells / name, key="obsm/X_umap")


def test_an_uncompressed_matrix_is_read_in_place(cells):
    assert os.path.basename(read_points(cells / "cells.h5ad").values.filename) == "cells.h5ad"
    assert "packed" not in str(read_points(cells / "packed.h5ad").values.filename)


def test_a_copy_goes_with_its_array(X, tmp_path, monkeypatch):
    """It has no file name, so nothing is left behind, and other machines get its rows through the store."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    np.savetxt(tmp_path / "t.csv", X, delimiter=",")
    rows = open_rows(tmp_path / "t.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert not rows.shared and not rows.resident
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows)).read(0, 200), X)


def test_a_copy_that_the_disk_cannot_hold_is_refused(frame, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=100))
    with pytest.raises(ValueError, match=r"has 100. Set TMPDIR to a folder with more room"):
        read_points(tmp_path / "t.parquet")


def test_embed_takes_the_path_and_keeps_the_names(frame, X, cells, tmp_path):
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "t.parquet")
    expected = gpe.embed(X, **OPTIONS).points
    for path in (tmp_path / "t.parquet", cells / "cells.h5ad", str(cells / "cells.zarr")):
        result = gpe.embed(path, store=tmp_path / "run.zarr", **OPTIONS)
        np.testing.assert_array_equal(result.points[:], expected)
        assert result.names.tolist() == NAMES
    assert gpe.open(tmp_path / "run.zarr").names.tolist() == NAMES


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_mistakes(frame, cells, tmp_path):
    pytest.importorskip("pyarrow")
    frame.to_csv(tmp_path / "t.csv")
    frame.reset_index().to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", frame.to_numpy())
    for arguments, error, words in [
        (("nothing.csv", {}), FileNotFoundError, "there is no file"),
        (
            ("t.csv", {}),
            TypeError,
            r"column 'name' holds 'cell 0 é'. Pass the column that holds the names of the rows, if any, as read_points",
        ),
        (("t.csv", {"index": "id"}), ValueError, "index must be one of the columns"),
        (("t.csv", {"key": "a"}), ValueError, "has no such parts"),
        (("t.npy", {"index": "a"}), ValueError, "is a npy file"),
        (("t.parquet", {}), TypeError, r"t.parquet' is not a table of numbers: column 'name' has type .*string"),
        ((cells / "cells.h5ad", {"key": "obs"}), TypeError, "pass the key of a matrix"),
    ]:
        with pytest.raises(error, match=words):
            read_points(tmp_path / arguments[0], **arguments[1])
    for text, error in [
        ("", ValueError),
        ("a,a\n1,2\n", ValueError),
        ("a,b\n1\n", TypeError),
        ("name\nx\n", TypeError),
    ]:
        with pytest.raises(error):
            read_points(write(tmp_path / "bad.csv", text))
    with pytest.raises(ValueError, match="at least 2 rows; got 0"):
        gpe.embed(write(tmp_path / "header.csv", "a,b\n"), **OPTIONS)
    with pytest.raises(ValueError, match=r"ends in .npy, .zarr, .csv, .tsv, .parquet, .h5ad"):
        read_points(write(tmp_path / "t.xlsx", ""))


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


def test_names_that_are_pickles_are_not_opened(cells, tmp_path, monkeypatch):
    """Format 2 has a codec that unpickles chunks; with the codec of texts before it, zarr lets it pass."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(cells / "cells.zarr", "trap.zarr")
    described = Path("trap.zarr/obs/_index/.zarray")
    metadata = json.loads(described.read_text(encoding="utf-8"))
    metadata |= {"compressor": None, "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]}
    described.write_text(json.dumps(metadata), encoding="utf-8")
    Path("trap.zarr/obs/_index/0").write_bytes(pickle.dumps(Trap()))
    Path("trap.zarr/.zmetadata").unlink(missing_ok=True)
    with pytest.raises(TypeError, match="stored as pickles, which are never read"):
        gpe.embed("trap.zarr", **OPTIONS)
    assert not Path("trapped").exists()


def test_without_the_extra_packages(frame, cells, tmp_path, monkeypatch):
    import sys

    frame.to_csv(tmp_path / "t.csv")
    for name in [name for name in sys.modules if name.split(".")[0] in ("pyarrow", "h5py")]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("pyarrow", "pyarrow.csv", "h5py"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'a .csv file needs pyarrow; .*pip install "scalable-gpe\[tables\]"'):
        read_points(tmp_path / "t.csv")
    with pytest.raises(ImportError, match=r'an .h5ad file needs h5py; .*pip install "scalable-gpe\[anndata\]"'):
        read_points(cells / "cells.h5ad")


def test_columns_to_colour_by(frame, X, cells, tmp_path):
    pytest.importorskip("pyarrow")
    table = frame.assign(kind=np.where(X[:, 0] > 50, "far", "near"))
    table.iloc[3, 3] = None
    table.to_csv(tmp_path / "t.csv")
    table.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "one.npy", X[:, 2])
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet"):
        np.testing.assert_array_equal(read_row_values(str(path), "a")[0], X[:, 0])
        assert set(read_row_values(str(path), "kind")[0]) >= {"far", "near"}
    assert read_row_values(str(tmp_path / "t.parquet"), "kind")[0][3] == "missing"
    np.testing.assert_array_equal(read_row_values(str(tmp_path / "X.npy"), "2")[0], X[:, 2])
    np.testing.assert_array_equal(read_row_values(str(tmp_path / "one.npy"))[0], X[:, 2])
    np.testing.assert_array_equal(read_row_values(str(cells / "cells.h5ad"), "size")[0], X[:, 0])
    assert read_row_values(str(cells / "cells.h5ad"), "kind")[0][:4].tolist() == ["missing", "left", "right", "missing"]
    with pytest.raises(ValueError, match=r"column= must name one of 'name', 'a'.*; got 'nothing'"):
        read_row_values(str(tmp_path / "t.csv"), "nothing")[0]
    with pytest.raises(ValueError, match=r"column= must name one of obs of .*'kind', 'size'; none was named"):
        read_row_values(str(cells / "cells.h5ad"))[0]
    with pytest.raises(ValueError, match="column= must be the number of a column"):
        read_row_values(str(tmp_path / "X.npy"))[0]


def test_missing_entries_of_obs(X, tmp_path):
    """A nullable column has values and a mask: masked entries are missing, not 1 or True."""
    anndata = pytest.importorskip("anndata")
    counts = pd.array([None, *range(1, 200)], dtype="Int64")
    obs = pd.DataFrame({"count": counts, "whole": pd.array(range(200), dtype="Int64")}, index=map(str, range(200)))
    anndata.AnnData(X=X, obs=obs).write_h5ad(tmp_path / "holes.h5ad")
    np.testing.assert_array_equal(read_row_values(str(tmp_path / "holes.h5ad"), "count")[0], [np.nan, *range(1, 200)])
    np.testing.assert_array_equal(read_row_values(str(tmp_path / "holes.h5ad"), "whole")[0], np.arange(200))


def test_distances(cells, tmp_path):
    matrix = sp.random(30, 30, 0.2, "csr", random_state=1)
    sp.save_npz(tmp_path / "lists.npz", matrix)
    assert abs(read_distances(str(tmp_path / "lists.npz")) - matrix).max() == 0
    assert read_distances(str(cells / "cells.h5ad")).shape == (200, 200)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_distances("nothing.npz")
