"""HDF5 files that others have written: only what the file itself holds is read.

An HDF5 file can name other files: external links, datasets whose raw data or whose parts (virtual datasets) are
elsewhere. Following them would read files that the user never named, so a file with any of them is refused as a whole,
before anything in it is read. The links that are left lead to places in the file itself.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from scalable_gpe.errors import Message
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
        raise ValueError(Message(f"{path!r} is not a sound .h5ad file: {error}. Write it again.")) from None


def _refuse_other_files(file: Any, path: str) -> None:
    """Look at every link and every dataset of a file; no link is followed, and no value is read."""
    import h5py

    links: list[tuple[str, Any]] = []
    file.visititems_links(lambda name, link: links.append((name, link)))  # which must not raise
    for name, link in links:
        if isinstance(link, h5py.ExternalLink):
            raise _elsewhere(path, name, "is a link to another file")
    for name, link in links:
        if isinstance(link, h5py.HardLink):
            _check_own(file[name], name, path)


def _check_own(item: Any, name: str, path: str) -> None:
    """Refuse a dataset whose values, or whose labels in early AnnData files, are in other files."""
    import h5py

    if not isinstance(item, h5py.Dataset):
        return
    if item.external or item.is_virtual:
        raise _elsewhere(path, name, "has its values in other files")
    labels = item.attrs.get("categories")
    if isinstance(labels, h5py.Reference) and labels:
        _check_own(item.file[labels], name, path)


def _elsewhere(path: str, name: str, why: str) -> ValueError:
    return ValueError(
        Message(
            f"{path!r}: {name!r} {why}, which is not followed. Copy the values into the file with h5repack or h5py."
        )
    )
