"""HDF5 files that others have written: only what the file itself holds is read.

An HDF5 file can name other files: external links, datasets whose raw data or whose parts (virtual datasets) are
elsewhere. Following them would read files that the user never named. A file with a link to another one is refused
before anything in it is read: the links that are left lead to places in the file itself. `check_own` refuses such
datasets.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from scalable_gpe.io.optional import import_optional


@contextlib.contextmanager
def open_hdf5(path: str) -> Iterator[Any]:
    """Open an .h5ad file for reading, as a file of h5py; damage and links to other files are named."""
    h5py = import_optional("h5py", "anndata", "an .h5ad file")
    try:
        with h5py.File(path, "r") as file:
            _refuse_other_files(file, path)
            yield file
    except (OSError, KeyError, RuntimeError) as error:  # what HDF5 raises for damaged content
        if getattr(error, "errno", None) or error.__cause__ is not None:
            raise
        raise ValueError(f"{path!r} is not a sound .h5ad file: {error}. Write it again.") from None


def _refuse_other_files(file: Any, path: str) -> None:
    """Look at every link of a file; none is followed."""
    from h5py import h5l

    own = (h5l.TYPE_HARD, h5l.TYPE_SOFT)
    # the layer of h5py that makes no object of each link: 0.014 ms instead of 0.1 ms
    found = file.id.links.visit(lambda name, link: None if link.type in own else name, info=True)
    if found is not None:
        raise _elsewhere(path, found.decode(errors="replace"), "is a link to another file")


def check_own(item: Any) -> None:
    """Refuse a dataset, or a group with one, whose values or whose labels (in early AnnData) are in other files."""
    import h5py

    if hasattr(item, "keys"):
        for part in filter(None, map(item.get, item)):
            check_own(part)
    if not isinstance(item, h5py.Dataset):
        return
    if item.external or item.is_virtual:
        raise _elsewhere(item.file.filename, (item.name or "a dataset").lstrip("/"), "has its values in other files")
    labels = item.attrs.get("categories")
    if isinstance(labels, h5py.Reference) and labels:
        check_own(item.file[labels])


def _elsewhere(path: str, name: str, why: str) -> ValueError:
    return ValueError(
        f"{path!r}: {name!r} {why}, which is not followed. Copy the values into the file with h5repack or h5py."
    )
