"""Counter-based random numbers: an entry is a function of (seed, row, column) and of nothing else.

Philox4x32-10 turns the counter (row low, row high, column group, stream) under the key ``seed`` into 128
random bits: two normal numbers, or 128 signs. The normals use + - * / and sqrt alone, which IEEE 754 rounds
alike everywhere, so that their bits depend on no mathematical library.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.loops.compiled import njit

GAUSSIAN_STREAM = 0
BERNOULLI_STREAM = 1
UNIFORM_STREAM = 2

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_ODD_3, _ODD_5, _ODD_7, _ODD_9, _ODD_11 = 1 / 3, 1 / 5, 1 / 7, 1 / 9, 1 / 11
_ODD_13, _ODD_15, _ODD_17, _ODD_19, _ODD_21 = 1 / 13, 1 / 15, 1 / 17, 1 / 19, 1 / 21


@njit(nogil=True, cache=True, inline="always")
def philox(c0: Any, c1: Any, c2: Any, c3: Any, seed: Any) -> Any:
    """Philox4x32-10 of one counter (four 32-bit words held in uint64) under a 64-bit key: two 64-bit words."""
    k0, k1 = seed & _LOW, seed >> _32
    for _ in range(10):
        first, second = _M0 * c0, _M1 * c2
        c0, c2 = (second >> _32) ^ c1 ^ k0, (first >> _32) ^ c3 ^ k1
        c1, c3 = second & _LOW, first & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0 | (c1 << _32), c2 | (c3 << _32)


@njit(nogil=True, cache=True, inline="always")
def words(row: Any, group: Any, stream: Any, seed: Any) -> Any:
    """128 random bits of one row and one group of columns, as two 64-bit words."""
    r = np.uint64(row)
    return philox(r & _LOW, r >> _32, np.uint64(group) & _LOW, np.uint64(stream), np.uint64(seed))


@njit(nogil=True, cache=True, inline="always")
def minus_log(p: Any) -> float:
    """-log(p) for a normal number 0 < p < 1: exponent and mantissa apart, then the series of artanh."""
    bits = np.float64(p).view(np.int64)
    exponent = float((bits >> 52) - 1022)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000).view(np.float64)
    if m < _SQRT_HALF:
        m, exponent = 2.0 * m, exponent - 1.0
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = z * _ODD_21 + _ODD_19
    series = series * z + _ODD_17
    series = series * z + _ODD_15
    series = series * z + _ODD_13
    series = series * z + _ODD_11
    series = series * z + _ODD_9
    series = series * z + _ODD_7
    series = series * z + _ODD_5
    series = series * z + _ODD_3
    return -2.0 * s * (series * z + 1.0) - exponent * _LN2


@njit(nogil=True, cache=True, inline="always")
def centred_uniform(word: Any) -> float:
    """((word >> 11) + 1/2) / 2^53 - 1/2 without rounding: centred first, because 53 bits leave no room for 1/2."""
    return (float(np.int64(word >> np.uint64(11)) - (1 << 52)) + 0.5) * (1.0 / (1 << 53))


@njit(nogil=True, cache=True)
def normals(q: npt.NDArray[np.float64], out: npt.NDArray[Any]) -> None:
    """Inverse normal distribution function at q + 1/2: Wichura's AS 241 (PPND16).

    The central formula comes first, for all entries (no branches: the compiler vectorises it), then the tails.
    """
    for j in range(q.size):
        out[j] = _central(q[j])
    for j in range(q.size):
        if abs(q[j]) > 0.425:
            tail = _tail(np.sqrt(minus_log(0.5 - abs(q[j]))))
            out[j] = tail if q[j] > 0 else -tail


@njit(nogil=True, cache=True, inline="always")
def _central(q: float) -> float:
    r = 0.180625 - q * q
    above = r * 2.5090809287301226727e3 + 3.3430575583588128105e4
    above = above * r + 6.7265770927008700853e4
    above = above * r + 4.5921953931549871457e4
    above = above * r + 1.3731693765509461125e4
    above = above * r + 1.9715909503065514427e3
    above = above * r + 1.3314166789178437745e2
    above = above * r + 3.3871328727963666080e0
    below = r * 5.2264952788528545610e3 + 2.8729085735721942674e4
    below = below * r + 3.9307895800092710610e4
    below = below * r + 2.1213794301586595867e4
    below = below * r + 5.3941960214247511077e3
    below = below * r + 6.8718700749205790830e2
    below = below * r + 4.2313330701600911252e1
    return q * above / (below * r + 1.0)


@njit(nogil=True, cache=True, inline="always")
def _tail(root: float) -> float:
    if root <= 5.0:
        r = root - 1.6
        above = r * 7.74545014278341407640e-4 + 2.27238449892691845833e-2
        above = above * r + 2.41780725177450611770e-1
        above = above * r + 1.27045825245236838258e0
        above = above * r + 3.64784832476320460504e0
        above = above * r + 5.76949722146069140550e0
        above = above * r + 4.63033784615654529590e0
        above = above * r + 1.42343711074968357734e0
        below = r * 1.05075007164441684324e-9 + 5.47593808499534494600e-4
        below = below * r + 1.51986665636164571966e-2
        below = below * r + 1.48103976427480074590e-1
        below = below * r + 6.89767334985100004550e-1
        below = below * r + 1.67638483018380384940e0
        below = below * r + 2.05319162663775882187e0
        return above / (below * r + 1.0)
    r = root - 5.0
    above = r * 2.01033439929228813265e-7 + 2.71155556874348757815e-5
    above = above * r + 1.24266094738807843860e-3
    above = above * r + 2.65321895265761230930e-2
    above = above * r + 2.96560571828504891230e-1
    above = above * r + 1.78482653991729133580e0
    above = above * r + 5.46378491116411436990e0
    above = above * r + 6.65790464350110377720e0
    below = r * 2.04426310338993978564e-15 + 1.42151175831644588870e-7
    below = below * r + 1.84631831751005468180e-5
    below = below * r + 7.86869131145613259100e-4
    below = below * r + 1.48753612908506148525e-2
    below = below * r + 1.36929880922735805310e-1
    below = below * r + 5.99832206555887937690e-1
    return above / (below * r + 1.0)


@njit(nogil=True, cache=True)
def fill_gaussian(
    out: npt.NDArray[Any], row_ids: npt.NDArray[np.int64], column_ids: npt.NDArray[np.int64], seed: Any
) -> None:
    """Write the N(0, 1) entries of the given rows and columns into ``out``; columns 2c, 2c + 1 share a call."""
    key = np.uint64(seed)
    q = np.empty(column_ids.size)
    for i in range(row_ids.size):
        group, first, second = np.int64(-1), np.uint64(0), np.uint64(0)
        for j in range(column_ids.size):
            column = column_ids[j]
            if column >> 1 != group:
                group = column >> 1
                first, second = words(row_ids[i], group, GAUSSIAN_STREAM, key)
            q[j] = centred_uniform(second if column & 1 else first)
        normals(q, out[i])


@njit(nogil=True, cache=True)
def fill_uniform(
    out: npt.NDArray[Any], row_ids: npt.NDArray[np.int64], column_ids: npt.NDArray[np.int64], seed: Any
) -> None:
    """Write numbers uniform on [0, 1) into ``out``: 53 bits of word c % 2 of call c // 2."""
    key = np.uint64(seed)
    for i in range(row_ids.size):
        for j in range(column_ids.size):
            column = column_ids[j]
            first, second = words(row_ids[i], column >> 1, UNIFORM_STREAM, key)
            word = second if column & 1 else first
            out[i, j] = float(word >> np.uint64(11)) * (1.0 / (1 << 53))


@njit(nogil=True, cache=True)
def fill_bernoulli(
    out: npt.NDArray[Any], row_ids: npt.NDArray[np.int64], column_ids: npt.NDArray[np.int64], seed: Any
) -> None:
    """Write the signs of the given rows and columns into ``out``: bit c % 128 of call c // 128; 1 is +1."""
    key = np.uint64(seed)
    for i in range(row_ids.size):
        group, first, second = np.int64(-1), np.uint64(0), np.uint64(0)
        for j in range(column_ids.size):
            column = column_ids[j]
            if column >> 7 != group:
                group = column >> 7
                first, second = words(row_ids[i], group, BERNOULLI_STREAM, key)
            word = second if column & 64 else first
            out[i, j] = 1.0 if (word >> np.uint64(column & 63)) & np.uint64(1) else -1.0
