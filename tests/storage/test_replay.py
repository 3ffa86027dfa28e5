"""Every file operation of a run is recorded; after any of them the machine may stop.

Each beginning of the record is replayed into a new folder, as it is found there after a kill, or after a power cut: all
names are there, but files whose content was not synced are empty, or hold zeros; or names that were not synced are
gone too. The next call must open or resume each of them to the bytes of the undisturbed run.
"""

import builtins
import io
import itertools
import json
import os
import re
import shutil
import threading

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.errors import StoreError
from scalable_gpe.execution.memory_plan import block_sizes

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
WAYS = ("kill", "empty", "zeros", "names")
SMALL = {"power": 3, "n_components": 2, "n_neighbors": 6}
WIDE = {**SMALL, "power": [3, "all"], "horizon": 16, "n_sketch": 4, "epsilon": "local"}
FEW, MANY = 50, 250
KEY = re.compile(r"[0-9a-f]{12}(-\d+)?")


def embed(store=None, **parameters):
    X = gpe.datasets.torus(90, random_state=2)
    X[40:44] = X[3]
    with block_sizes(block_rows=64, panel_columns=3, resident_bytes=0, save_seconds=0.0):
        return gpe.embed(X, store=store, progress=False, n_jobs=1, **parameters)


# --- the record -----------------------------------------------------------------------------------


class Record:
    """The operations on files below a folder, in the order in which the system did them.

    Opened files have numbers, because a file may get another name while it is written.
    """

    def __init__(self, root, monkeypatch):
        self.root, self.operations = os.path.realpath(root), []
        self._guard, self._numbers = threading.RLock(), {}  # descriptor of an open file: its number
        self._plain = {name: getattr(os, name) for name in ("open", "fsync", "rename", "link")}
        self._plain_open = io.open
        for name in ("rename", "replace", "link"):
            self._patch(monkeypatch, name, 2)
        for name in ("unlink", "remove", "mkdir", "rmdir"):
            self._patch(monkeypatch, name, 1)
        for where, name, call in (
            (builtins, "open", self._open_file),
            (io, "open", self._open_file),
            (os, "open", self._open),
            (os, "fsync", self._fsync),
        ):
            monkeypatch.setattr(where, name, call)
        others = ("write", "writev", "pwrite", "ftruncate", "truncate", "symlink", "fdatasync", "sendfile")
        for name in (*others, "copy_file_range"):
            self._refuse(monkeypatch, name)

    def _name(self, path, folder=None):
        """The name of a path below the root; None if it lies elsewhere."""
        path = os.fsdecode(path)
        if folder is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
        path = os.path.abspath(path)
        return path[len(self.root) + 1 :] if path.startswith(f"{self.root}/") else None

    def _patch(self, monkeypatch, name, n_paths):
        call = getattr(os, name)
        kind = {"replace": "rename", "remove": "unlink"}.get(name, name)

        def recorded(*paths, **options):
            folders = (
                [options.get("src_dir_fd"), options.get("dst_dir_fd")] if n_paths == 2 else [options.get("dir_fd")]
            )
            names = [self._name(*one) for one in zip(paths[:n_paths], folders)]
            with self._guard:
                call(*paths, **options)
                if any(one is not None for one in names):
                    assert None not in names, f"{name} leads in or out of the store: {paths}"
                    self.operations.append((kind, *names))

        monkeypatch.setattr(os, name, recorded)

    def _refuse(self, monkeypatch, name):
        """Nothing of a store is changed in a way that is not recorded."""
        call = getattr(os, name)

        def refused(file, *arguments, **options):
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else file
            assert self._name(path) is None or "deleted" in path or "/#" in path, f"os.{name}({path}) is not recorded"
            return call(file, *arguments, **options)

        monkeypatch.setattr(os, name, refused)

    def _opened(self, name, descriptor, *, empty):
        self._numbers[descriptor] = number = len(self.operations)
        self.operations.append(("open", name, number, empty))

    def _open(self, path, flags, *arguments, dir_fd=None, **options):
        name = None if isinstance(path, int) else self._name(path, dir_fd)
        changes = flags & (os.O_WRONLY | os.O_RDWR) and not flags & getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY
        with self._guard:
            descriptor = self._plain["open"](path, flags, *arguments, dir_fd=dir_fd, **options)
            if name is not None and changes:
                self._opened(name, descriptor, empty=bool(flags & os.O_TRUNC))
            else:
                self._numbers.pop(descriptor, None)
            return descriptor

    def _open_file(self, path, mode="r", buffering=-1, *arguments, opener=None, **options):
        name = None if isinstance(path, int) or opener else self._name(path)
        if name is None or mode in ("r", "rb"):
            return self._plain_open(path, mode, buffering, *arguments, opener=opener, **options)
        assert "b" in mode and mode.strip("+b") in "rwx", mode
        record = self

        class Recorded(io.FileIO):
            def write(self, content):
                with record._guard:
                    at, n_bytes = self.tell(), super().write(content)
                    record._written(self.fileno(), at, bytes(memoryview(content).cast("B")[:n_bytes]))
                return n_bytes

            def truncate(self, size=None):
                with record._guard:
                    size = super().truncate(size)
                    record.operations.append(("truncate", record._numbers[self.fileno()], size))
                return size

        with self._guard:
            raw = Recorded(path, mode.replace("b", ""))
            self._opened(name, raw.fileno(), empty="r" not in mode)
        return raw if buffering == 0 else io.BufferedWriter(raw)

    def _written(self, descriptor, at, content):
        """Two halves: a write may be cut short."""
        number, half = self._numbers[descriptor], len(content) // 2
        for start, part in ((0, content[:half]), (half, content[half:])):
            if part:
                self.operations.append(("write", number, at + start, part))

    def _fsync(self, descriptor):
        """The disk need not do it: what it would keep is replayed."""
        with self._guard:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            name = "" if path == self.root else self._name(path)
            if name is not None and not path.endswith(" (deleted)"):
                self.operations.append(("fsync", name))


# --- what is left of it ---------------------------------------------------------------------------


class File:
    """Bytes, and those that are on the disk."""

    def __init__(self):
        self.content, self.synced = b"", b""

    def write(self, at, content):
        self.content = self.content[:at].ljust(at, b"\0") + content + self.content[at + len(content) :]

    def left(self, way):
        """The bytes that are found."""
        if way == "kill":
            return self.content
        return (
            self.content and bytes(len(self.content)) if way == "zeros" and self.content != self.synced else self.synced
        )


class Folder(dict):
    """Files and folders by their names, and those names that are on the disk."""

    def __init__(self):
        super().__init__()
        self.synced = {}


class Disk:
    """The files of a store after each operation."""

    def __init__(self):
        self.root, self._opened = Folder(), {}

    def _folder(self, path):
        folder = self.root
        for part in filter(None, path.split("/")):
            folder = folder[part]
        return folder

    def _place(self, path):
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def do(self, kind, *arguments):
        """One operation; KeyError if the files that it needs are not there."""
        getattr(self, f"_{kind}")(*arguments)

    def _open(self, path, number, empty):
        folder, name = self._place(path)
        file = self._opened[number] = folder.setdefault(name, File())
        file.content = b"" if empty else file.content

    def _write(self, number, at, content):
        self._opened[number].write(at, content)

    def _truncate(self, number, size):
        file = self._opened[number]
        file.content = file.content[:size].ljust(size, b"\0")

    def _rename(self, path, to):
        """In one step: a disk that has one of the two changes has the other one."""
        (folder, name), (target, new) = self._place(path), self._place(to)
        target[new] = folder.pop(name)

    def _link(self, path, to):
        (folder, name), (target, new) = self._place(path), self._place(to)
        target[new] = folder[name]

    def _unlink(self, path):
        folder, name = self._place(path)
        del folder[name]

    def _rmdir(self, path):
        folder, name = self._place(path)
        assert not folder.pop(name)

    def _mkdir(self, path):
        folder, name = self._place(path)
        assert name not in folder
        folder[name] = Folder()

    def _fsync(self, path):
        folder, name = self._place(path)
        found = folder[name] if name else folder
        found.synced = found.content if isinstance(found, File) else dict(found)

    def left(self, way, folder=None):
        """Contents of the files that are found, and (None) folders, by their names."""
        folder, found = self.root if folder is None else folder, {}
        for name, one in (folder.synced if way == "names" else folder).items():
            if isinstance(one, Folder):
                found |= {name: None} | {f"{name}/{more}": content for more, content in self.left(way, one).items()}
            else:
                found[name] = one.left(way)
        return found


# --- the runs -------------------------------------------------------------------------------------


def files(store):
    """The bytes of every chunk, and the names of all files but the lock and groups that only hold others.

    The keys of results are left out of the names: they say how often a store was started over.
    """
    found = [one for one in sorted(store.rglob("*")) if one.is_file() and one.name != ".lock"]
    kept = [one for one in found if one.name != "zarr.json" or not is_bare(json.loads(one.read_bytes()))]
    names = [KEY.sub("key", one.relative_to(store).as_posix()) for one in kept]
    return sorted((name, one.read_bytes() if "c" in one.parts else b"") for name, one in zip(names, kept))


def is_bare(described):
    return described["node_type"] == "group" and not described["attributes"]


class Recorded:
    """The file operations of one run, or several, in one store, and what they leave."""

    def __init__(self, store, *runs):
        store.mkdir()
        self.runs = runs
        with pytest.MonkeyPatch.context() as patch:
            record = Record(store, patch)
            for parameters in runs:
                result = embed(store, **parameters)
        self.operations, self.files = record.operations, files(store)
        self.points = result.at(3)[:]

    def check(self, store, *, finished):
        """A store opens or resumes to the same bytes, as the runs were called; one of a finished run opens."""
        try:
            np.testing.assert_array_equal(gpe.open(store).at(3)[:], self.points)
        except (StoreError, FileNotFoundError):
            assert not finished
        for parameters in self.runs:
            np.testing.assert_array_equal(embed(store, **parameters).at(3)[:], self.points)
        assert files(store) == self.files

    def replay(self, folder, count, ways_of):
        """Check `count` beginnings of the record in some ways, and the whole of it in all ways."""
        disk, seen, store, whole = Disk(), set(), folder / "run.zarr", len(self.operations)
        wanted = dict(zip(np.linspace(1, whole, min(count, whole)).astype(int).tolist(), ways_of))
        for number, operation in enumerate(self.operations, 1):
            disk.do(*operation)
            for way in WAYS if number == whole else wanted.get(number, ()):
                found = disk.left(way)
                if (state := hash(repr(found))) in seen and number < whole:
                    continue
                seen.add(state)
                make(store, found)
                try:
                    self.check(store, finished=number == whole)
                except Exception as error:
                    raise AssertionError(f"{way} after {number} of {whole}, {operation[:2]}: {error}") from error
                shutil.rmtree(store)


def make(store, found):
    """Make files and folders from what `Disk.left` says."""
    store.mkdir()
    for name, content in found.items():
        (store / name).mkdir() if content is None else (store / name).write_bytes(content)


@pytest.fixture(autouse=True, scope="module")
def no_fsync():
    """Most of the time of small runs; what was synced is known from the record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("small") / "run.zarr", SMALL)


def test_the_record_has_all_operations(small, tmp_path):
    """Replayed as a whole it gives the same store; the names say that all kinds of operations were seen."""
    disk = Disk()
    for operation in small.operations:
        disk.do(*operation)
    make(tmp_path / "run.zarr", disk.left("kill"))
    assert files(tmp_path / "run.zarr") == small.files
    assert {"open", "write", "rename", "unlink", "mkdir", "rmdir", "fsync"} <= {one[0] for one in small.operations}


def test_fifty_beginnings_resume(small, tmp_path):
    small.replay(tmp_path, FEW, itertools.cycle([(way,) for way in WAYS]))


@pytest.mark.slow
def test_every_beginning_resumes(small, tmp_path):
    small.replay(tmp_path, len(small.operations), itertools.repeat(WAYS))


@pytest.mark.slow
@pytest.mark.parametrize("runs", [(WIDE,), (SMALL, {**SMALL, "resume": False})], ids=["wide", "again"])
def test_beginnings_of_other_runs_resume(runs, tmp_path):
    Recorded(tmp_path / "recorded.zarr", *runs).replay(tmp_path, MANY, itertools.repeat(WAYS))
