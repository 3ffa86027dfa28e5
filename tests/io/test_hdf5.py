"""HDF5 files that name other files: nothing of these is read, whatever part of the file names them."""

import os

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.io.columns import read_row_values
from scalable_gpe.io.files import read_distances, read_points

h5py = pytest.importorskip("h5py")
X = np.arange(40, dtype=np.float32).reshape(20, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with files that must not be read."""
    monkeypatch.chdir(tmp_path)
    X.tofile("secret.bin")
    with h5py.File("other.h5", "w") as file:
        file["X"] = X
        file["names"] = [f"secret {number}" for number in range(20)]
        file["obsm/X_pca"] = X
        sparse = file.create_group("sparse")
        sparse.attrs.update({"encoding-type": "csr_matrix", "shape": (20, 20)})
        for name, values in {"data": X[:, 0], "indices": np.arange(20), "indptr": np.arange(21)}.items():
            sparse[name] = values
    return tmp_path


def external(file, name, source):
    file[name] = h5py.ExternalLink("other.h5", source)


def soft(file, name, source):
    """A link within the file, through one that leads out of it."""
    file["door"] = h5py.ExternalLink("other.h5", "/")
    file[name] = h5py.SoftLink(f"/door{source}")


def raw(file, name, source):
    file.create_dataset(name, X.shape, X.dtype, external=[("secret.bin", 0, X.nbytes)])


def raw_of_this_file(file, name, source):
    """Raw data that is said to be in the file itself, at any offset: bytes that are not the dataset's."""
    file.create_dataset(name, X.shape, X.dtype, external=[("crafted.h5ad", 0, X.nbytes)])


def virtual(file, name, source):
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:] = h5py.VirtualSource("other.h5", source, X.shape)
    file.create_virtual_dataset(name, layout)


def virtual_within(file, name, source):
    """A virtual dataset whose parts may come from another file, although the first ones do not."""
    file["own"] = X
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:10] = h5py.VirtualSource(".", "own", X.shape)[:10]
    layout[10:] = h5py.VirtualSource("other.h5", source, X.shape)[10:]
    file.create_virtual_dataset(name, layout)


def refused(action):
    """The text of an action's error; it must be the same whether the other files exist or not."""
    texts = []
    for suffix in ("", ".away"):
        for name in ("other.h5", "secret.bin"):
            os.rename(name, name + suffix)
        with pytest.raises(ValueError, match=r"which is not followed") as raised:
            action()
        texts.append(str(raised.value))
    for name in ("other.h5", "secret.bin"):
        os.rename(name + ".away", name)
    assert texts[0] == texts[1]
    return texts[0]


@pytest.mark.parametrize("trick", [external, soft, raw, raw_of_this_file, virtual, virtual_within])
@pytest.mark.parametrize("name", ["X", "obsm/X_pca"])
def test_points_in_another_file(folder, trick, name):
    with h5py.File("crafted.h5ad", "w") as file:
        file.create_group("obs")
        trick(file, name, f"/{name}")
    for key in (None, name):
        where = "door" if trick is soft else name
        assert repr(where) in refused(lambda key=key: read_points("crafted.h5ad", key=key))


def test_the_other_parts(folder):
    with h5py.File("crafted.h5ad", "w") as file:
        file["X"] = X
        obs = file.create_group("obs")
        obs.attrs["_index"] = "names"
        external(file, "obs/names", "/names")
        external(file, "obs/kind", "/names")
        external(file, "obsp/distances", "/sparse")
        group = file.create_group("layers/sparse")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": (20, 20)})
        for name in ("data", "indices", "indptr"):
            external(file, f"layers/sparse/{name}", f"/sparse/{name}")
        column = file.create_group("obs/codes")
        column.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
        external(file, "obs/codes/categories", "/names")
        column["codes"] = np.zeros(20, np.int8)
        column["codes"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    refused(lambda: read_points("crafted.h5ad"))
    refused(lambda: read_distances("crafted.h5ad"))
    refused(lambda: read_points("crafted.h5ad", key="layers/sparse"))
    pytest.importorskip("anndata")
    for column in ("kind", "codes"):
        refused(lambda column=column: read_row_values("crafted.h5ad", column))


def test_labels_of_early_files_that_are_in_another_file(folder):
    """A column refers to its labels; a reference is no link."""
    with h5py.File("crafted.h5ad", "w") as file:
        file["X"] = X
        file["obs/codes"] = np.zeros(20, np.int8)
        labels = file.create_dataset(None, X.shape, X.dtype, external=[("secret.bin", 0, X.nbytes)])
        file["obs/codes"].attrs["categories"] = labels.ref
        file["z/labels"] = labels
    pytest.importorskip("anndata")
    refused(lambda: read_row_values("crafted.h5ad", "codes"))


def test_links_within_a_file(folder):
    with h5py.File("crafted.h5ad", "w") as file:
        file["obsm/X_pca"] = X
        file["here"] = h5py.SoftLink("/obsm/X_pca")
        file["obsm/also"] = h5py.SoftLink("X_pca")
        file["nowhere"] = h5py.SoftLink("/nothing")
        raw(file, "X", "/X")  # what is not needed does no harm
    for key in (None, "here", "obsm/also", "/obsm/X_pca"):
        np.testing.assert_array_equal(read_points("crafted.h5ad", key=key).values, X)


def test_links_in_circles(folder):
    with h5py.File("crafted.h5ad", "w") as file:
        file["X"] = h5py.SoftLink("/Y")
        file["Y"] = h5py.SoftLink("/X")
        group = file.create_group("obs")
        group["loop"] = group
    with pytest.raises(ValueError, match=r"not a sound \.h5ad file"):
        read_points("crafted.h5ad")


def test_numbers_that_are_not_stored_as_numpy_stores_them(folder):
    """Mapped, these bytes would be other numbers."""
    with h5py.File("front.h5ad", "w", userblock_size=512) as file:
        file["X"] = X
    np.testing.assert_array_equal(read_points("front.h5ad").values, X)
    packed = h5py.h5t.STD_I32LE.copy()
    packed.set_precision(12)
    packed.set_offset(8)
    with h5py.File("packed.h5ad", "w") as file:
        space = h5py.h5s.create_simple(X.shape)
        dataset = h5py.h5d.create(file.id, b"X", packed, space)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, X.astype(np.int32))
    np.testing.assert_array_equal(read_points("packed.h5ad").values, X)
    for dtype in (">f4", ">f8", "<i2", "u1"):
        with h5py.File("order.h5ad", "w") as file:
            file["X"] = X.astype(dtype)
        np.testing.assert_array_equal(gpe.read_points("order.h5ad").values, X)
