"""Storage backends: a prefix of an object store, or a local directory, which fsspec reaches.

A backend handles files and nothing else. Keys are names below it, with slashes. `zarr_store` defines what a store
contains, `lock` who may write to it.
"""

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from scalable_gpe.errors import StoreError
from scalable_gpe.storage.lock import LOCK_FILE, LocalLock, Lock, ObjectLock

StorageOptions = dict[str, Any]  # what fsspec needs to reach a URL: credentials, endpoint, ...

_URL = re.compile(r"[a-z][a-z0-9+.-]*(?:://|::)", re.IGNORECASE)
_LOCAL = re.compile(r"(?:file|local)://", re.IGNORECASE)
_S3 = re.compile(r"s3a?://", re.IGNORECASE)
# libraries used by fsspec whose network and credential errors are no OSError
_NETWORK = {"botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "azure", "adlfs"}

# what other formats are called; no new store ends so
_FILE = re.compile(
    r"\.(np[yz]|csv|tsv|txt|parquet|feather|h5ad|h5|hdf5|loom|mtx|mat|rds|pkl|json|gz|zip|html?|png|pdf|svg|jpe?g)",
    re.IGNORECASE,
)


def is_url(path: Any) -> bool:
    """Whether a path is the URL of something that is not a local file.

    Examples
    --------
    >>> is_url("s3://bucket/run.zarr"), is_url("file:///data/run.zarr"), is_url("run.zarr")
    (True, False, False)
    """
    return isinstance(path, str) and bool(_URL.match(path)) and not _LOCAL.match(path)


def local_path(path: Any) -> str:
    """A path of the file system from a path or a ``file://`` URL."""
    return _LOCAL.sub("", os.fspath(path))


def is_read_only(path: Any) -> bool:
    """Whether a path is a store in a directory to which this process cannot write, as on a read-only mount."""
    if path is None or is_url(path):
        return False
    folder = local_path(path)
    return os.path.exists(f"{folder}/zarr.json") and not os.access(folder, os.W_OK)


def check_options(storage_options: Any, store: Any, *paths: Any) -> None:
    """Check where results go, and storage_options: a dict, and at least one URL to use it for."""
    if store is not None and not is_url(store) and not os.path.exists(local_path(store)):
        check_new_store(store)
    if storage_options is None:
        return
    if not isinstance(storage_options, dict):
        raise TypeError(f"storage_options must be a dict; got {type(storage_options).__name__}.")
    if storage_options and not any(is_url(path) for path in (store, *paths)):
        raise ValueError(
            "storage_options is for URLs such as s3://bucket/run.zarr, and neither X nor store is one. Leave it out."
        )


def check_new_store(path: Any) -> None:
    """Refuse to make a store, which is a folder, under a name that ends like a file of another format."""
    name = PurePosixPath(str(path) if is_url(path) else local_path(path))
    if _FILE.fullmatch(name.suffix):
        raise ValueError(
            f"store is a folder, and must not end like a file; got {str(path)!r}. Pass a name such as "
            f"{name.stem + '.zarr'!r}, and write {name.name!r} with export afterwards."
        )


def check_key(key: str) -> None:
    """Refuse a name that leads out of the store: a store that was tampered with may hold such names."""
    if key.startswith("/") or "\\" in key or "\0" in key or any(part in (".", "..") for part in key.split("/")):
        raise StoreError(f"name {key!r} leads out of the store. This store was tampered with: do not use it.")


class FsspecBackend:
    """A prefix of an object store (s3://, gs://, memory://, ...), which writes an object completely or not at all.

    `network`: a failed read does not mean that the bytes are damaged. `request_bytes` are read in the time that one
    more request takes. `_failures` come from the system, not from damaged bytes or a fault of the program, and
    `_way_out` is what helps against them.
    """

    network = True
    request_bytes = 2**22
    _failures: tuple[type[Exception], ...] = (OSError, RuntimeError)
    _way_out = "check the URL, storage_options, credentials and network"

    def __init__(self, url: str, storage_options: StorageOptions | None = None) -> None:
        self.url = url.rstrip("/")
        self.options = dict(storage_options or {})
        # no cached listings, because other processes write too; one request at a time, because otherwise s3fs asks for
        # the size of an object before it reads it
        self._settings = {
            "use_listings_cache": False,
            **({"max_concurrency": 1} if _S3.match(url) else {}),
            **self.options,
        }
        self._fs, self._root = _file_system(self.url, self._settings)
        self._zarr: Any = None

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> Any:
        return FsspecBackend, (self.url, self.options)

    @contextlib.contextmanager
    def io(self, what: str = "", *, missing: bool = False) -> Iterator[None]:
        """Turn a failure into a StoreError that says what failed and why; with `missing`, a file may be absent."""
        try:
            yield
        except Exception as error:
            named = isinstance(error, StoreError) or (missing and isinstance(error, FileNotFoundError))
            of_network = type(error).__module__.partition(".")[0] in _NETWORK
            if named or not (of_network or isinstance(error, self._failures)):
                raise
            text = " ".join(str(getattr(error, "strerror", None) or error).split())
            raise StoreError(
                f"{what or f'store {str(self)!r}'}: {text.rstrip('.') or type(error).__name__}. Finished results "
                f"are kept; {self._way_out}, and run the same call again to resume."
            ) from error

    def zarr(self, *, read_only: bool) -> Any:
        """The store object for zarr, with its own connection, because zarr runs in another event loop."""
        from zarr.storage import FsspecStore

        if self._zarr is None:
            self._zarr = FsspecStore.from_url(self.url, storage_options=self._settings)
        return self._zarr.with_read_only(read_only)

    def is_empty(self) -> bool:
        """Whether there are no files below the prefix."""
        return not self._ls("")

    def exists(self, key: str) -> bool:
        """Whether there is such a file."""
        with self.io():
            return bool(self._fs.exists(self._path(key)))

    def read(self, key: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Read a file, or a range of its bytes."""
        with self.io(missing=True):
            return bytes(self._fs.cat_file(self._path(key), start=start, end=stop))

    def write(self, key: str, content: Any, *, synced: bool = False, create: bool = False) -> None:
        """Write one file, completely or not at all; of two writers of one file, one wins.

        `synced`: it is on the disk before it has its name. `create`: only if it does not exist, if the object store
        supports that.
        """
        with self.io():
            self._fs.pipe_file(self._path(key), bytes(content), **({"mode": "create"} if create else {}))

    def files(self, prefix: str = "") -> list[str]:
        """All files below a prefix, in order."""
        with self.io():
            return sorted(path[len(self._root) + 1 :] for path in self._fs.find(self._path(prefix)))

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders (common prefixes) directly below a prefix."""
        folders = (entry["name"] for entry in self._ls(prefix) if entry["type"] != "file")
        return sorted(name.rstrip("/").rpartition("/")[2] for name in folders)

    def objects(self) -> list[str]:
        """Names of the files that are in no folder."""
        return sorted(entry["name"].rpartition("/")[2] for entry in self._ls("") if entry["type"] == "file")

    def size(self, prefix: str) -> int:
        """Bytes of all files below a prefix."""
        with self.io():
            return sum(entry["size"] for entry in self._fs.find(self._path(prefix), detail=True).values())

    def length(self, key: str) -> int:
        """Bytes of one file."""
        with self.io(missing=True):
            return int(self._fs.size(self._path(key)))

    def delete(self, key: str) -> None:
        """Remove one file, if it is there."""
        with self.io(), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(key))

    def remove(self, prefix: str) -> None:
        """Remove everything below a prefix, its zarr.json first."""
        self.delete(f"{prefix}/zarr.json")
        if files := self.files(prefix):
            with self.io(), contextlib.suppress(FileNotFoundError):
                self._fs.rm([self._path(file) for file in files])

    def flush(self, prefix: str, *, deep: bool = True) -> None:
        """Nothing to do: a written object is durable."""

    def remove_partial(self) -> None:
        """Nothing to do: a killed writer leaves no part of an object."""

    def remove_root(self) -> None:
        """Nothing to do: an empty prefix does not exist."""

    def lock(self) -> Lock:
        """Take the lock of the store."""
        return ObjectLock(self)

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}" if key else self._root

    def _ls(self, prefix: str) -> list[StorageOptions]:
        with self.io(), contextlib.suppress(FileNotFoundError):
            return list(self._fs.ls(self._path(prefix), detail=True))
        return []


class LocalBackend(FsspecBackend):
    """A directory of the file system: no link leads out of it, and files are synced."""

    network = False
    request_bytes = 2**13
    _failures = (OSError,)
    _way_out = "make room or repair the disk"

    def __init__(self, path: str) -> None:
        from fsspec.implementations.local import LocalFileSystem

        self.path = Path(os.path.abspath(path))  # workers may have another working directory
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"store {str(self.path)!r} is a file. Pass the path of a directory.")
        self._fs, self._root = LocalFileSystem(), str(self.path)
        self._inside: set[str] = set()  # folders that are known to lie inside

    def __str__(self) -> str:
        return str(self.path)

    def __reduce__(self) -> Any:
        return LocalBackend, (str(self.path),)

    def zarr(self, *, read_only: bool) -> Any:
        """The store object for zarr."""
        from zarr.storage import LocalStore

        return LocalStore(self.path, read_only=read_only)

    def is_empty(self) -> bool:
        """Whether the directory is missing, or holds nothing but the lock and what a killed writer has begun."""
        names = os.listdir(self.path) if self.path.exists() else []
        return all(name == LOCK_FILE or (name.startswith("zarr.json.") and name.endswith(".partial")) for name in names)

    def write(self, key: str, content: Any, *, synced: bool = False, create: bool = False) -> None:
        """Write one file, completely or not at all; see `FsspecBackend.write`."""
        file = self._path(key)
        unfinished = f"{file}.{uuid.uuid4().hex}.partial"
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(unfinished, "wb") as target:
            target.write(content)
            if synced:
                target.flush()
                os.fsync(target.fileno())
        os.replace(unfinished, file)

    # fsspec's own listings leave out a folder in which a file gets another name meanwhile

    def files(self, prefix: str = "") -> list[str]:
        """All files below a prefix, in order."""
        files, start = [], len(self._root) + 1
        for parent, _, names in os.walk(self._path(prefix)):
            files += [os.path.join(parent, name)[start:].replace(os.sep, "/") for name in names]
        return sorted(files)

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below a prefix."""
        folder = Path(self._path(prefix))
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []

    def remove(self, prefix: str) -> None:
        """Remove everything below a prefix, its zarr.json first."""
        folder = Path(self._path(prefix))
        if folder.exists():
            self.delete(f"{prefix}/zarr.json")
            with self.io():
                shutil.rmtree(folder)

    def flush(self, prefix: str, *, deep: bool = True) -> None:
        """Fsync the files of a folder (with `deep`, of its subfolders too), so that no commit precedes its data.

        The folders around it follow: without them its name may be lost.
        """
        for parent, _, names in os.walk(self._path(prefix)):
            for name in [*sorted(set(names) - {LOCK_FILE}), "."]:
                try:
                    _fsync(os.path.join(parent, name))
                except FileNotFoundError:
                    if not name.endswith(".partial"):  # a task that runs twice has just given it its name
                        raise
            if not deep:
                break
        if prefix:
            self.flush(prefix.rpartition("/")[0], deep=False)

    def remove_partial(self) -> None:
        """Remove what a killed writer left behind."""
        with self.io():
            for file in self.path.rglob("*.partial"):
                file.unlink(missing_ok=True)

    def remove_root(self) -> None:
        """Remove the directory, if it holds nothing but the lock."""
        with contextlib.suppress(OSError):
            self.delete(LOCK_FILE)
            self.path.rmdir()

    def lock(self) -> Lock:
        """Take the lock of the store."""
        return LocalLock(self.path)

    def _path(self, key: str) -> str:
        """Path of a file or folder, whose folder must lie inside the directory, symbolic links followed."""
        path = super()._path(key)
        folder = key if os.path.isdir(path) else key.rpartition("/")[0]
        if folder not in self._inside:
            root, real = os.path.realpath(self.path), os.path.realpath(self.path / folder)
            if real != root and not real.startswith(f"{root}{os.sep}"):
                raise StoreError(
                    f"{folder!r} of store {str(self)!r} is a link to {real!r}, outside of the store. Remove the link, "
                    "or do not use this store."
                )
            self._inside.add(folder)
        return path


def _fsync(file: str) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_backend(path: Any, storage_options: StorageOptions | None = None) -> FsspecBackend:
    """Return the backend of a path or URL; nothing is read or written."""
    return FsspecBackend(path, storage_options) if is_url(path) else LocalBackend(local_path(path))


def _file_system(url: str, options: StorageOptions) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        fs, root = url_to_fs(url, **options)
    except ImportError as error:
        hint = " Run: pip install 'scalable-gpe[remote]'" if _S3.match(url) else ""
        raise ImportError(f"{url!r} needs a package that is not installed: {error}.{hint}") from error
    except ValueError as error:
        raise ValueError(f"{url!r} is neither a path nor a URL that fsspec knows: {error}.") from error
    return fs, root.rstrip("/")
