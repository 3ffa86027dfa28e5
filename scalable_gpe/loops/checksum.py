"""CRC-32C in compiled code, which lets other threads run meanwhile; google_crc32c computes the same and does not.

Three parts of the bytes are summed at once, because the processor's instruction takes three cycles and can begin one in
each cycle; then the sums of the parts are joined.
"""

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
_POLYNOMIAL = 0x82F63B78
_WORD, _HALF = ir.IntType(64), ir.IntType(32)


def crc32c(content: np.ndarray) -> int:
    """The checksum of a contiguous array of bytes."""
    if len(content) < _SMALL or _instruction() is None:
        return int(google_crc32c.value(content))
    part = len(content) // 24 * 8
    return int(_checksum(content, part, _zeros(part)))


def crc32c_of_runs(content: np.ndarray, run: int) -> np.ndarray:
    """The checksum of each run of so many bytes; the last run may be shorter."""
    sums = np.empty(-(-len(content) // run), np.uint32)
    n_whole = len(content) // run
    if _instruction() is None:
        n_whole = 0
    elif n_whole:
        part = run // 24 * 8
        _checksums(content[: n_whole * run].reshape(n_whole, run), part, _zeros(part), sums)
    for number in range(n_whole, len(sums)):
        sums[number] = crc32c(content[number * run : (number + 1) * run])
    return sums


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
def _checksum(content, part, zeros):
    """The checksum of three parts of equal length, a multiple of eight, and of the bytes after them."""
    first, second, third = np.uint64(0xFFFFFFFF), np.uint64(0), np.uint64(0)
    for at in range(0, part, 8):
        first = _step(content, at, first)
        second = _step(content, part + at, second)
        third = _step(content, 2 * part + at, third)
    state = _after_zeros(np.uint32(first), zeros) ^ np.uint32(second)
    state = _after_zeros(state, zeros) ^ np.uint32(third)
    for at in range(3 * part, len(content)):
        state ^= np.uint32(content[at])
        for _ in range(8):
            state = (state >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) if state & np.uint32(1) else np.uint32(0))
    return state ^ np.uint32(0xFFFFFFFF)


@njit(nogil=True, cache=True)
def _checksums(runs, part, zeros, sums):
    """The checksum of each row of `runs`."""
    for number in range(len(runs)):
        sums[number] = _checksum(runs[number], part, zeros)


@njit(nogil=True, cache=True)
def _after_zeros(state, zeros):
    """A state after as many zeros as `zeros` stands for: entry b is the state of bit b alone after them."""
    found = np.uint32(0)
    for bit in range(32):
        if (state >> np.uint32(bit)) & np.uint32(1):
            found ^= zeros[bit]
    return found


@lru_cache(maxsize=64)
def _zeros(n_bytes: int) -> np.ndarray:
    """The states of single bits after some bytes of zeros, by repeated doubling."""
    # one byte of zeros: eight shifts of the polynomial division
    one = np.array([_shifted(1 << bit, 8) for bit in range(32)], np.uint32)
    found = np.array([1 << bit for bit in range(32)], np.uint32)
    while n_bytes:
        if n_bytes & 1:
            found = _applied(one, found)
        one = _applied(one, one)
        n_bytes >>= 1
    return found


def _shifted(state: int, n_bits: int) -> int:
    for _ in range(n_bits):
        state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
    return state


def _applied(operator: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Each state after the zeros that an operator stands for."""
    bits = states[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    found: np.ndarray = np.bitwise_xor.reduce(np.where(bits == 1, operator, np.uint32(0)), axis=1)
    return found
