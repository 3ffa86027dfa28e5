"""Locks: one process at a time may write to a store.

In a directory the operating system locks a file, and frees it when its holder dies. An object store has no such locks:
there a small object names the holder, which rewrites it every few seconds as a heartbeat.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from scalable_gpe.errors import StoreError, logger

if TYPE_CHECKING:
    from scalable_gpe.storage.backends import FsspecBackend

BEAT = 4.0  # seconds between two heartbeats
STALE = 60.0  # seconds without a heartbeat, observed by the next process, after which a holder counts as dead
LOCK_FILE = ".lock"
_NAME = "lock."


def _open(path: Path) -> int:
    """Open a lock file, and never what a link leads to."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


class LocalLock:
    """An exclusive lock on the file ``.lock`` of a directory."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = _open(path / LOCK_FILE)
        except OSError as error:
            link = (
                f"{LOCK_FILE} in it is a link. Remove that" if error.errno == errno.ELOOP else f"{error}. Check access"
            )
            raise StoreError(f"store {str(path)!r} cannot be locked: {link}, or pass another path.") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise StoreError(
                    f"store {str(path)!r} is in use by another process. Wait for it, or pass another path."
                ) from None
            raise StoreError(f"store {str(path)!r} cannot be locked: {error}. Pass a path on another disk.") from error

    def check(self) -> None:
        """Nothing to do: the operating system keeps the lock."""

    def release(self) -> None:
        """Release the lock."""
        os.close(self._file)


class ObjectLock:
    """An object ``lock.<n>`` that names its holder, created by a conditional put and rewritten at every heartbeat.

    No clocks are compared: a process that finds a lock watches it, and the holder is alive if the object changes. A
    lock that has not changed for `STALE` seconds is taken over by creating ``lock.<n + 1>``, which only one process can
    do. A holder that finds a higher number, or another holder in its own object, has lost the lock; `check` raises.
    """

    def __init__(self, backend: FsspecBackend) -> None:
        self._backend, self._lost = backend, ""
        self._self = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "token": uuid.uuid4().hex,
        }
        self._number = self._next()
        self._create()
        for older in self._numbers():
            if older < self._number:
                backend.delete(_key(older))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="gpe-lock", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise if another process has taken the lock: look at it, as this process may have been stopped until now."""
        self._look()
        if self._lost:
            raise StoreError(
                f"store {str(self._backend)!r} was taken over by {self._lost}, because this process sent no "
                f"heartbeat for {STALE:.0f} s. Finished results are kept; let the other process finish."
            )

    def release(self) -> None:
        """Release the lock."""
        self._stop.set()
        self._thread.join()
        if self._lost:
            return
        try:
            self._backend.delete(_key(self._number))
        except Exception as error:  # the lock becomes stale in a minute; the first error must not be lost
            logger.warning("the lock of %s could not be removed: %s", self._backend, error)

    def _next(self) -> int:
        """The number of a lock that may be taken now."""
        numbers = self._numbers()
        if not numbers:
            return 0
        first, began = self._read(numbers[-1]), time.monotonic()
        logger.info("%s: waiting for a heartbeat of %s", self._backend, _who(first))
        while time.monotonic() - began < STALE:
            time.sleep(BEAT / 4)
            now = self._read(numbers[-1])
            if now is None:
                return self._next()  # released meanwhile
            if now != first:
                self._refuse(now)
        logger.warning("%s: taking over the lock of %s", self._backend, _who(first))
        return numbers[-1] + 1

    def _create(self) -> None:
        try:
            self._backend.write(_key(self._number), self._content(0), create=True)
        except StoreError:  # the object exists already, or the network failed
            if self._read(self._number) is None:
                raise
        holder = self._read(self._number)
        if not self._is_mine(holder):
            self._refuse(holder)

    def _refuse(self, holder: bytes | None) -> None:
        raise StoreError(
            f"store {str(self._backend)!r} is in use by another process ({_who(holder)}). Wait for it, or pass another "
            "URL."
        )

    def _beat(self) -> None:
        count = 0
        while not self._stop.wait(BEAT):
            count += 1
            try:
                self._look()
                if self._lost:
                    return
                self._backend.write(_key(self._number), self._content(count))
            except Exception as error:  # any error: the network may come back, and a silent end would lose the lock
                logger.warning("the lock of %s could not be renewed: %s", self._backend, error)

    def _look(self) -> None:
        holder = self._read(max(self._numbers(), default=self._number))
        if not self._is_mine(holder):
            self._lost = _who(holder)

    def _numbers(self) -> list[int]:
        names = [name.removeprefix(_NAME) for name in self._backend.objects() if name.startswith(_NAME)]
        return sorted(int(name) for name in names if name.isdigit())

    def _read(self, number: int) -> bytes | None:
        try:
            return self._backend.read(_key(number))
        except FileNotFoundError:
            return None

    def _is_mine(self, content: bytes | None) -> bool:
        return _holder(content).get("token") == self._self["token"]

    def _content(self, beat: int) -> bytes:
        return json.dumps({**self._self, "beat": beat}).encode()


Lock = LocalLock | ObjectLock


def _key(number: int) -> str:
    return f"{_NAME}{number}"


def _holder(content: bytes | None) -> dict[str, object]:
    try:
        return dict(json.loads(content or b"{}"))
    except (ValueError, TypeError):
        return {}


def _who(content: bytes | None) -> str:
    holder = _holder(content)
    return f"host {holder.get('host', 'unknown')}, pid {holder.get('pid')}, since {holder.get('since')}"
