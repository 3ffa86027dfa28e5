"""Writers of other tools' formats: any block size gives the same content, and no file is left half-written."""

import csv
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from scalable_gpe.io import export
from scalable_gpe.io.export import CsrPieces, DenseBlocks, check_replaceable, replacing

pytestmark = pytest.mark.filterwarnings("ignore:Writing zarr v2")
Y = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
NAMES = np.array([f"row {i // 2}" for i in range(50)])  # names may repeat


def dense(n_blocks):
    return DenseBlocks(Y.shape, iter(np.array_split(Y, n_blocks)))


@pytest.mark.parametrize("n_blocks", [1, 7])
def test_npy_and_parquet(n_blocks, tmp_path):
    export.write_npy(tmp_path / "Y.npy", dense(n_blocks))
    np.testing.assert_array_equal(np.load(tmp_path / "Y.npy"), Y)
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for labels in (None, ("name", NAMES), ("row", np.arange(50) * 3)):
        export.write_table(tmp_path / "Y.parquet", dense(n_blocks), ["a", "b", "c"], labels)
        frame = pd.read_parquet(tmp_path / "Y.parquet")
        np.testing.assert_array_equal(frame[["a", "b", "c"]].to_numpy(), Y)
        assert frame.index.tolist() == (list(range(50)) if labels is None else labels[1].tolist())


@pytest.mark.parametrize("n_blocks", [1, 7])
def test_csv(n_blocks, tmp_path, monkeypatch):
    """Numbers read back as they were; names are quoted where they have to be."""
    monkeypatch.setattr(export, "_TEXT_ROWS", 4)  # several pieces of a block
    path, names = tmp_path / "Y.csv", [f'a, "{i}"' for i in range(50)]
    export.write_table(path, dense(n_blocks), ["a", "b", "c"], None)
    np.testing.assert_array_equal(np.loadtxt(path, np.float32, delimiter=",", skiprows=1), Y)
    export.write_table(path, dense(n_blocks), ["a", "b", "c"], ("name", np.array(names)))
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["name", "a", "b", "c"] and [row[0] for row in rows] == names
    np.testing.assert_array_equal(np.array([row[1:] for row in rows], np.float32), Y)


@pytest.mark.parametrize("name", ["Y.h5ad", "Y.zarr"])
@pytest.mark.parametrize("n_blocks", [1, 7])
def test_anndata(n_blocks, name, tmp_path, monkeypatch, recwarn):
    anndata = pytest.importorskip("anndata")
    monkeypatch.setattr(export, "_CHUNK", 32)  # several chunks of a zarr array
    matrix = sp.random(50, 50, 0.1, "csr", np.float32, random_state=0)
    cuts = np.linspace(0, matrix.nnz, n_blocks + 1).astype(int)
    pieces = ((matrix.indices[a:b], matrix.data[a:b]) for a, b in itertools.pairwise(cuts))
    export.write_anndata(
        tmp_path / name,
        NAMES,
        obs={},
        obsm={"X_y": dense(n_blocks)},
        obsp={"weights": CsrPieces(matrix.indptr, pieces)},
        uns={"made": {"by": "hand", "n": 3}},
        annotations=None,
    )
    assert not [str(one.message) for one in recwarn if "not unique" in str(one.message)]
    with pytest.warns(UserWarning, match="not unique"):  # the reader says it
        adata = (anndata.read_h5ad if name.endswith(".h5ad") else anndata.read_zarr)(tmp_path / name)
    assert adata.obs_names.tolist() == NAMES.tolist() and adata.n_vars == 0
    np.testing.assert_array_equal(adata.obsm["X_y"], Y)
    assert (adata.obsp["weights"] != matrix).nnz == 0
    assert adata.uns["made"] == {"by": "hand", "n": 3}


def test_a_target_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "Y.npy"
    target.write_bytes(b"old")

    def interrupted():
        with replacing(target) as unfinished:
            unfinished.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]
    with replacing(target) as unfinished:
        unfinished.write_bytes(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_old_target_stays_if_the_last_rename_fails(tmp_path, monkeypatch, kind):
    def write(path, text):
        if kind == "folder":
            path.mkdir()
        (path / "zarr.json" if kind == "folder" else path).write_text(text)

    def failing(source, to, rename=os.rename):
        if Path(source).name.startswith(".unfinished") and (kind == "file" or "new" in read(Path(source))):
            raise OSError(5, "injected")
        rename(source, to)

    def read(path):
        return (path / "zarr.json" if kind == "folder" else path).read_text()

    target = tmp_path / "Y.zarr"
    write(target, "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing)
        patch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="injected"), replacing(target) as unfinished:
            write(unfinished, "new")
    assert read(target) == "old" and list(tmp_path.iterdir()) == [target]
    with replacing(target) as first, replacing(target) as second:  # two exports at a time do not mix
        write(first, "first")
        write(second, "second")
    assert read(target) == "first" and list(tmp_path.iterdir()) == [target]


def test_only_an_anndata_folder_is_replaced(tmp_path):
    folder = tmp_path / "Y.zarr"
    check_replaceable(folder, overwrite=False)
    folder.mkdir()
    check_replaceable(folder, overwrite=False)  # an empty folder holds nothing
    (folder / "zarr.json").write_text('{"attributes": {"encoding-type": "anndata"}}', encoding="utf-8")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        check_replaceable(folder, overwrite=False)
    check_replaceable(folder, overwrite=True)
    (folder / "zarr.json").write_text('{"attributes": {}}', encoding="utf-8")
    with pytest.raises(FileExistsError, match="holds something else"):
        check_replaceable(folder, overwrite=True)
