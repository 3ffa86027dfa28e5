"""CRC-32C in compiled code, which lets other threads run meanwhile; google_crc32c computes the same and does not.

Three parts of the bytes are summed at once, because the processor's instruction takes three cycles and can begin one in
each cycle; then the sums of the parts are joined.

Files are read here too: a piece of them is summed while the processor's cache still holds it.
"""

import os
from functools import lru_cache

import google_crc32c
import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from scalable_gpe.loops.compiled import njit

_SMALL = 2**14  # bytes that take less time than a call of compiled code
_PART = 2**10  # bytes of each of the three parts
_PIECE = 2**18  # bytes that are read by one call of the system: they fit in the cache of a core
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_POLYNOMIAL = 0x82F63B78
_BEGIN = np.uint32(0xFFFFFFFF)  # the state before the first byte; the checksum is the last state, inverted
_WORD, _HALF = ir.IntType(64), ir.IntType(32)

_open = types.ExternalFunction("open", types.int32(types.uintp, types.int32))
_preadv = types.ExternalFunction("preadv", types.intp(types.int32, types.uintp, types.int32, types.int64))
_lseek = types.ExternalFunction("lseek", types.int64(types.int32, types.int64, types.int32))
_close = types.ExternalFunction("close", types.int32(types.int32))


def crc32c(content: np.ndarray) -> int:
    """The checksum of a contiguous array of bytes."""
    if len(content) < _SMALL or _instruction() is None:
        return int(google_crc32c.value(content))
    return int(_checksum(content, _joins()))


def crc32c_of_runs(content: np.ndarray, run: int) -> np.ndarray:
    """The checksum of each run of so many bytes; the last run may be shorter."""
    sums = np.empty(-(-len(content) // run), np.uint32)
    if _instruction() is None:
        sums[:] = [google_crc32c.value(content[start : start + run]) for start in range(0, len(content), run)]
    else:
        _checksums(content, run, _joins(), sums)
    return sums


def read_runs(path: str, offset: int | None, content: np.ndarray, run: int, stored: np.ndarray) -> np.ndarray | None:
    """Read runs of bytes, each followed by its checksum, from a file; return the checksums of what was read.

    Those in the file go to `stored`. Without an offset, the file must hold nothing else. None if something other than
    this has to read them: there is no such instruction or no such call here, or the system has failed, was interrupted,
    or found another length.
    """
    if _instruction() is None or not hasattr(os, "preadv") or not len(content):
        return None
    sums, name = np.empty(len(stored), np.uint32), np.frombuffer(os.fsencode(path) + b"\0", np.uint8)
    is_read = _read_file(name, _FLAGS, -1 if offset is None else offset, content, run, _joins(), stored, sums)
    return sums if is_read else None


@lru_cache(maxsize=1)
def _instruction() -> str | None:
    """The processor's instruction for CRC-32C, or None."""
    if any(vars(config)[name] for name in ("CPU_NAME", "CPU_FEATURES", "DISABLE_JIT")):
        return None  # compiled for another processor than this one
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("sse4.2"):
        return "llvm.x86.sse42.crc32.64.64"
    return "llvm.aarch64.crc32cx" if features.get("crc") else None


@intrinsic
def _step(typing_context, content, at, state):
    """The state of a checksum after eight more bytes."""

    def code(context, builder, signature, values):
        array = context.make_array(signature.args[0])(context, builder, values[0])
        place = builder.bitcast(builder.gep(array.data, [values[1]]), _WORD.as_pointer())
        word, name = builder.load(place, align=1), _instruction()
        kind = _WORD if "x86" in name else _HALF
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, _WORD]), name)
        old = values[2] if kind is _WORD else builder.trunc(values[2], _HALF)
        new = builder.call(function, [old, word])
        return new if kind is _WORD else builder.zext(new, _WORD)

    return types.uint64(content, types.intp, types.uint64), code


@njit(nogil=True, cache=True)
def _checksum(content, joins):
    return _advanced(content, 0, len(content), _BEGIN, joins) ^ _BEGIN


@njit(nogil=True, cache=True)
def _checksums(content, run, joins, sums):
    """The checksum of each run."""
    for number in range(len(sums)):
        stop = min((number + 1) * run, len(content))
        sums[number] = _advanced(content, number * run, stop, _BEGIN, joins) ^ _BEGIN


@njit(nogil=True, cache=True)
def _read_file(name, flags, offset, content, run, joins, stored, sums):
    """Read runs from a file, all of it if the offset is -1; one call, because each waits for the interpreter's lock."""
    file = _open(name.ctypes.data, flags)
    if file < 0:
        return False
    is_read = offset >= 0 or _lseek(file, 0, 2) == len(content) + 4 * len(stored)  # 2: from the end
    is_read = is_read and _read_runs(file, max(offset, 0), content, run, joins, stored, sums)
    _close(file)
    return is_read


@njit(nogil=True, cache=True)
def _read_runs(file, offset, content, run, joins, stored, sums):
    """Read runs and their checksums in pieces, and sum each piece; return whether all bytes came."""
    buffers = np.empty((128, 2), np.uint64)  # the addresses and lengths that the system fills, in their order
    n_bytes, at, number, state = len(content), 0, 0, _BEGIN
    while at < n_bytes:
        stop, ends, n_buffers = at, number, 0
        while stop < n_bytes and n_buffers + 2 <= len(buffers):
            end = min((ends + 1) * run, n_bytes)
            if end - at > _PIECE:
                if stop == at:  # a part of a long run
                    end = at + _PIECE
                    buffers[0] = content.ctypes.data + at, _PIECE
                    stop, n_buffers = end, 1
                break
            buffers[n_buffers] = content.ctypes.data + stop, end - stop
            buffers[n_buffers + 1] = stored.ctypes.data + 4 * ends, 4
            stop, ends, n_buffers = end, ends + 1, n_buffers + 2
        asked = stop - at + 4 * (ends - number)
        if _preadv(file, buffers.ctypes.data, n_buffers, offset) != asked:
            return False
        offset += asked
        while at < stop:
            end = min((number + 1) * run, n_bytes)
            state = _advanced(content, at, min(end, stop), state, joins)
            at = min(end, stop)
            if at == end:
                sums[number] = state ^ _BEGIN
                number, state = number + 1, _BEGIN
    return True


@njit(nogil=True, cache=True)
def _advanced(content, start, stop, state, joins):
    """The state of a checksum after some more bytes."""
    at = start
    while at + 3 * _PART <= stop:
        first, second, third = np.uint64(state), np.uint64(0), np.uint64(0)
        for place in range(at, at + _PART, 8):
            first = _step(content, place, first)
            second = _step(content, place + _PART, second)
            third = _step(content, place + 2 * _PART, third)
        state = _joined(np.uint32(first), joins) ^ np.uint32(second)
        state = _joined(state, joins) ^ np.uint32(third)
        at += 3 * _PART
    while at + 8 <= stop:
        state = np.uint32(_step(content, at, np.uint64(state)))
        at += 8
    while at < stop:
        state ^= np.uint32(content[at])
        for _ in range(8):
            state = (state >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) if state & np.uint32(1) else np.uint32(0))
        at += 1
    return state


@njit(nogil=True, cache=True)
def _joined(state, joins):
    """A state after a part of zeros."""
    return (
        joins[0, state & np.uint32(255)]
        ^ joins[1, (state >> np.uint32(8)) & np.uint32(255)]
        ^ joins[2, (state >> np.uint32(16)) & np.uint32(255)]
        ^ joins[3, state >> np.uint32(24)]
    )


@lru_cache(maxsize=1)
def _joins() -> np.ndarray:
    """For each byte of a state and each value of it, the state of that byte alone after a part of zeros."""
    one = np.array([_shifted(1 << bit, 8) for bit in range(32)], np.uint32)  # each bit after one byte of zeros
    for _ in range(_PART.bit_length() - 1):  # after twice as many
        one = _applied(one, one)
    states = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]
    return _applied(one, states)


def _shifted(state: int, n_bits: int) -> int:
    for _ in range(n_bits):
        state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
    return state


def _applied(operator: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Each state after the zeros that an operator stands for."""
    bits = states[..., None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    found: np.ndarray = np.bitwise_xor.reduce(np.where(bits == 1, operator, np.uint32(0)), axis=-1)
    return found
