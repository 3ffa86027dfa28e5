"""HDF5 files that others have written: only what the file itself holds is read.

An HDF5 file can name other files: external links, datasets whose raw data or whose parts (virtual datasets) are
elsewhere. Following them would read files that the user never named, so each link is looked at before it is followed.
"""

import contextlib
import math
import zlib
from collections.abc import Iterator
from typing import Any

from scalable_gpe.errors import Message
from scalable_gpe.io.optional import import_optional

_DEFLATE = 1  # the number of the filter
_DEFLATE_RATIO = 1032  # the most that deflate can expand
_HARMLESS = 2**28  # bytes that a chunk may expand to unseen
_PIECE = 2**20
_SLACK = 2**12
_DEPTH = 8  # of what is given to another library
_MOST_LINKS = 64  # soft links that are followed one after the other


class HdfGroup:
    """A group of an HDF5 file, read only; its parts are groups of this kind and datasets of h5py."""

    def __init__(self, group: Any, path: str) -> None:
        self._group = group
        self._path = path

    @property
    def attrs(self) -> Any:
        """Attributes of the group."""
        return self._group.attrs

    def keys(self) -> list[str]:
        """Names of the parts, whether they can be read or not."""
        return list(self._group.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: str) -> bool:
        try:
            return self._find(key) is not None
        except ValueError:  # it is there, and refused when it is read
            return True

    def get(self, key: str) -> Any:
        """A part of the group, or None."""
        found = self._find(key)
        if found is None or not hasattr(found, "keys"):
            return found
        return HdfGroup(found, self._path)

    def __getitem__(self, key: str) -> Any:
        found = self.get(key)
        if found is None:
            raise ValueError(Message(f"{self._path!r} holds no {key!r}. Write the file again."))
        return found

    def raw(self, key: str, depth: int = _DEPTH) -> Any:
        """A part as h5py gives it, for another library to read; everything below it is checked."""
        found = self._find(key)
        if depth == 0:
            raise ValueError(Message(f"{self._path!r}: the groups of {key!r} are too deep. Write it again."))
        if hasattr(found, "keys"):
            for name in found:
                HdfGroup(found, self._path).raw(name, depth - 1)
        elif found is not None:
            check_chunks(found, self._path)
        if (
            found is not None and not hasattr(found, "keys") and found.attrs.get("categories")
        ):  # early AnnData: a reference to the labels
            check_own(found.file[found.attrs["categories"]], key, self._path)
        return found

    def _find(self, key: str) -> Any:
        """Follow a path step by step; nothing of another file is opened."""
        import h5py

        node = self._group
        steps = [step for step in reversed(key.split("/")) if step not in ("", ".")]
        n_links = 0
        while steps:
            step = steps.pop()
            link = node.get(step, getlink=True) if hasattr(node, "keys") else None
            if link is None:
                return None
            if isinstance(link, h5py.SoftLink):
                n_links += 1
                if n_links > _MOST_LINKS:
                    raise ValueError(Message(f"{self._path!r}: the links of {key!r} lead nowhere. Write it again."))
                node = self._group.file if link.path.startswith("/") else node
                steps += [one for one in reversed(link.path.split("/")) if one not in ("", ".")]
            elif isinstance(link, h5py.HardLink):
                node = node[step]
            else:
                raise _elsewhere(self._path, key, "is a link to another file")
        if not hasattr(node, "keys"):
            check_own(node, key, self._path)
        return node


def check_own(dataset: Any, key: str, path: str) -> None:
    """Refuse a dataset whose values are in other files."""
    if not hasattr(dataset, "shape"):
        raise TypeError(Message(f"{key} of {path!r} is a type, not an array. Pass the key of a matrix."))
    if dataset.shape is None:
        raise TypeError(Message(f"{key} of {path!r} is empty: it has no shape. Pass the key of a matrix."))
    if dataset.external or dataset.is_virtual:
        raise _elsewhere(path, key, "has its values in other files")


def check_chunks(dataset: Any, path: str) -> None:
    """Refuse a compressed dataset whose chunks expand beyond their size: HDF5 itself would follow them."""
    if dataset.chunks is None:
        return
    settings = dataset.id.get_create_plist()
    n_deflate = sum(settings.get_filter(number)[0] == _DEFLATE for number in range(settings.get_nfilters()))
    most = math.prod(dataset.chunks) * dataset.dtype.itemsize + _SLACK
    suspects = []

    def look(chunk: Any) -> None:
        if chunk.size > 2 * most or (n_deflate and chunk.size * _DEFLATE_RATIO > max(most, _HARMLESS)):
            suspects.append(chunk)

    dataset.id.chunk_iter(look)
    for chunk in suspects:
        data = b"" if chunk.size > 2 * most else dataset.id.read_direct_chunk(chunk.chunk_offset)[1]
        if n_deflate > 1 or not data or (n_deflate and _expands(data, most)):
            raise ValueError(Message(f"{path!r}: a chunk of {dataset.name!r} is larger than it says. Write it again."))


def _expands(data: bytes, most: int) -> bool:
    """Whether a stream of deflate gives more bytes than it may; they are counted, not kept."""
    stream, total = zlib.decompressobj(), 0
    try:
        while data and total <= most:
            total += len(stream.decompress(data, _PIECE))
            data = stream.unconsumed_tail
    except zlib.error:
        return False  # HDF5 says what is wrong
    return total > most


def _elsewhere(path: str, key: str, why: str) -> ValueError:
    return ValueError(
        Message(f"{path!r}: {key!r} {why}, which is not followed. Copy the values into the file with h5repack or h5py.")
    )


@contextlib.contextmanager
def open_hdf5(path: str) -> Iterator[HdfGroup]:
    """Open an .h5ad file for reading; damage is named."""
    h5py = import_optional("h5py", "anndata", "an .h5ad file")
    try:
        with h5py.File(path, "r") as file:
            yield HdfGroup(file, path)
    except (OSError, KeyError, RuntimeError) as error:  # what HDF5 raises for damaged content
        if isinstance(error, RecursionError) or getattr(error, "errno", None) or error.__cause__ is not None:
            raise
        raise ValueError(Message(f"{path!r} is not a sound .h5ad file: {error}. Write it again.")) from None
