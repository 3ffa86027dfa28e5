"""Squared distances in vector registers, with the same bits wherever they are computed.

The search needs the same distance for a pair of rows whichever loop compares them, in whichever order, because equal
distances are how it knows a pair that it has seen. A compiler that vectorises a sum chooses the order of its terms for
each loop. So these functions are written in the compiler's own language: 16 partial sums, added in a fixed order. Half
of the time for 50 features went into adding up partial sums, so those of four distances are added up together.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from scalable_gpe.loops.registers import (
    BYTE,
    CACHE_LINE,
    DOUBLE,
    FLOAT,
    INDEX,
    INTEGER,
    prefetch,
    splat,
    sum_up,
)

_SHORT = ir.IntType(16)
TILE = 32  # samples that are compared together
_LANES = 16  # partial sums
BYTES_AT_ONCE = 32  # rows of bytes are a multiple of this long
Terms = Callable[..., list[tuple[Any, Any]]]


@intrinsic
def four_squares(typing_context, X, row, a, b, c, d):
    """Squared distances of a row to four others, float32. Rows are float32, or bytes (see `quantize_rows`)."""
    whole = X.dtype == types.int8

    def code(context, builder, signature, values):
        if whole:
            return cgutils.pack_array(builder, _byte_squares(context, builder, signature, values))
        return cgutils.pack_array(builder, _squares(context, builder, signature, values, FLOAT))

    return types.UniTuple(types.float32, 4)(X, *[types.intp] * 5), code


@intrinsic
def exact_square(typing_context, X, row, other):
    """The squared distance of two rows, in float64."""

    def code(context, builder, signature, values):
        return _squares(context, builder, signature, values, DOUBLE)[0]

    return types.float64(X, types.intp, types.intp), code


@intrinsic
def tile_squares(typing_context, samples, block, a, b, c, d, out):
    """Squared distances of four rows of `block` to all samples: out[r, m], float32, features added one after the other.

    Samples are stored feature by feature; their number is a multiple of `TILE`. The sums of 32 samples and four rows
    stay in registers.
    """

    def code(context, builder, signature, values):
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, values, strict=True)
            if kind != types.intp
        ]
        _tile(builder, *arrays, values[2:6])
        return context.get_dummy_value()

    return types.void(samples, block, *[types.intp] * 4, out), code


@intrinsic
def projection(typing_context, X, row, mean, direction):
    """The scalar product of a row, less a mean, with a direction, float32."""

    def code(context, builder, signature, values):
        array, *others = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, values, strict=True)
            if kind != types.intp
        )
        n_features = builder.extract_value(array.shape, 1)
        rows = [builder.gep(array.data, [builder.mul(values[1], n_features)]), *(other.data for other in others)]

        def product(x, mean, direction):
            return [(builder.fsub(x, mean), direction)]

        return _summed(builder, rows, n_features, product, 1, FLOAT)[0]

    return types.float32(X, types.intp, mean, direction), code


@intrinsic
def fetch(typing_context, X, row):
    """Prefetch a row into the second cache."""

    def code(context, builder, signature, values):
        array = context.make_array(signature.args[0])(context, builder, values[0])
        n_features = builder.extract_value(array.shape, 1)
        start = builder.bitcast(builder.gep(array.data, [builder.mul(values[1], n_features)]), BYTE.as_pointer())
        n_bytes = builder.mul(n_features, ir.Constant(INDEX, signature.args[0].dtype.bitwidth // 8))
        none, line = ir.Constant(INDEX, 0), ir.Constant(INDEX, CACHE_LINE)
        with cgutils.for_range_slice(builder, none, n_bytes, line, INDEX) as (at, _):
            prefetch(builder, builder.gep(start, [at]), cache=2)
        return context.get_dummy_value()

    return types.void(X, types.intp), code


def _squares(context: Any, builder: Any, signature: Any, values: Any, number: Any) -> list[Any]:
    """Squared distances of a row of X to others: code for ``values``, which are X, the row and the others."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    n_features = builder.extract_value(array.shape, 1)
    rows = [builder.gep(array.data, [builder.mul(one, n_features)]) for one in values[1:]]

    def squares(x: Any, *others: Any) -> list[tuple[Any, Any]]:
        differences = [builder.fsub(other, x) for other in others]
        return [(difference, difference) for difference in differences]

    return _summed(builder, rows, n_features, squares, len(rows) - 1, number)


def _tile(builder: Any, samples: Any, block: Any, out: Any, rows: Any) -> None:
    n_features, n_samples = (builder.extract_value(samples.shape, axis) for axis in (0, 1))
    kind, none, one = ir.VectorType(FLOAT, 16), ir.Constant(INDEX, 0), ir.Constant(INDEX, 1)
    starts = [builder.gep(block.data, [builder.mul(row, n_features)]) for row in rows]
    parts = range(0, TILE, 16)
    sums = {(r, part): cgutils.alloca_once(builder, kind) for r in range(len(rows)) for part in parts}
    with cgutils.for_range_slice(builder, none, n_samples, ir.Constant(INDEX, TILE), INDEX) as (first, _):
        for total in sums.values():
            builder.store(ir.Constant(kind, [0.0] * 16), total)
        with cgutils.for_range_slice(builder, none, n_features, one, INDEX) as (feature, _):
            at = builder.gep(samples.data, [builder.add(builder.mul(feature, n_samples), first)])
            some = {part: _load(builder, at, ir.Constant(INDEX, part), 16, kind) for part in parts}
            for r, start in enumerate(starts):
                value = splat(builder, builder.load(builder.gep(start, [feature])), kind)
                for part in parts:
                    step = builder.fsub(value, some[part])
                    total = sums[r, part]
                    builder.store(builder.fadd(builder.load(total), builder.fmul(step, step)), total)
        for (r, part), total in sums.items():
            place = builder.add(first, ir.Constant(INDEX, part))
            place = builder.add(place, builder.mul(n_samples, ir.Constant(INDEX, r)))
            target = builder.bitcast(builder.gep(out.data, [place]), kind.as_pointer())
            builder.store(builder.load(total), target).align = 4


def _byte_squares(context: Any, builder: Any, signature: Any, values: Any) -> list[Any]:
    """The same for rows of bytes, in whole numbers; neighbouring products are added as one instruction does it."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    n_features = builder.extract_value(array.shape, 1)
    row, *others = [builder.gep(array.data, [builder.mul(one, n_features)]) for one in values[1:]]
    half = BYTES_AT_ONCE // 2
    sums = [cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(INTEGER, half), [0] * half)) for _ in others]
    none, step = ir.Constant(INDEX, 0), ir.Constant(INDEX, BYTES_AT_ONCE)
    with cgutils.for_range_slice(builder, none, n_features, step, INDEX) as (feature, _):
        own = _shorts(builder, row, feature)
        for other, total in zip(others, sums, strict=True):
            difference = builder.sub(_shorts(builder, other, feature), own)
            wide = builder.sext(difference, ir.VectorType(INTEGER, BYTES_AT_ONCE))
            squares = builder.mul(wide, wide)
            pairs = builder.add(*(_every_other(builder, squares, first) for first in (0, 1)))
            builder.store(builder.add(builder.load(total), pairs), total)
    return [builder.sitofp(one, FLOAT) for one in _sums(builder, [builder.load(total) for total in sums])]


def _shorts(builder: Any, row: Any, feature: Any) -> Any:
    """Bytes of a row as numbers of 16 bits."""
    stored = ir.VectorType(BYTE, BYTES_AT_ONCE)
    loaded = builder.load(builder.bitcast(builder.gep(row, [feature]), stored.as_pointer()))
    loaded.align = 1
    return builder.sext(loaded, ir.VectorType(_SHORT, BYTES_AT_ONCE))


def _every_other(builder: Any, vector: Any, first: int) -> Any:
    places = list(range(first, vector.type.count, 2))
    kind = ir.VectorType(INTEGER, len(places))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), ir.Constant(kind, places))


def _summed(builder: Any, rows: list[Any], n_features: Any, terms: Terms, n_sums: int, number: Any) -> list[Any]:
    """Sums over features of the products that `terms` gives for the values of some rows at a feature.

    The features beyond a multiple of 16 are added as the last ones of the last 16; fewer than 16 by fours and singly.
    """
    none, all_lanes = ir.Constant(INDEX, 0), ir.Constant(INDEX, _LANES)
    totals = [cgutils.alloca_once(builder, number) for _ in range(n_sums)]
    with builder.if_else(builder.icmp_signed(">=", n_features, all_lanes)) as (long, short):
        with long:
            stop = builder.and_(n_features, ir.Constant(INDEX, -_LANES))
            sums, _ = _partial_sums(builder, rows, none, stop, _LANES, terms, number, n_sums)
            kept = [cgutils.alloca_once_value(builder, one) for one in sums]
            with builder.if_then(builder.icmp_signed("!=", stop, n_features)):
                added = _last_terms(builder, rows, n_features, stop, terms, sums, number)
                for place, one in zip(kept, added, strict=True):
                    builder.store(one, place)
            for place, total in zip(totals, _sums(builder, [builder.load(one) for one in kept]), strict=True):
                builder.store(total, place)
        with short:
            stop = builder.and_(n_features, ir.Constant(INDEX, -4))
            fours, start = _partial_sums(builder, rows, none, stop, 4, terms, number, n_sums)
            singles, _ = _partial_sums(builder, rows, start, n_features, 1, terms, number, n_sums)
            for place, total, single in zip(totals, _sums(builder, fours), singles, strict=True):
                builder.store(builder.fadd(total, single), place)
    return [builder.load(place) for place in totals]


def _last_terms(
    builder: Any, rows: list[Any], n_features: Any, stop: Any, terms: Terms, sums: list[Any], number: Any
) -> list[Any]:
    """Add the terms of the features from `stop` on: the last 16 features are read, and those before `stop` not used."""
    kind, flags = ir.VectorType(number, _LANES), ir.VectorType(INTEGER, _LANES)
    first = builder.sub(n_features, ir.Constant(INDEX, _LANES))
    n_used = builder.trunc(builder.sub(n_features, stop), INTEGER)
    numbers_from_end = ir.Constant(flags, list(range(_LANES, 0, -1)))
    is_used = builder.icmp_signed("<=", numbers_from_end, splat(builder, n_used, flags))
    products = terms(*(_load(builder, row, first, _LANES, kind) for row in rows))
    zero, fma = ir.Constant(kind, [0.0] * _LANES), _fma(builder, kind)
    return [
        builder.call(fma, [builder.select(is_used, a, zero), b, total])
        for (a, b), total in zip(products, sums, strict=True)
    ]


def _partial_sums(
    builder: Any, rows: list[Any], start: Any, stop: Any, width: int, terms: Terms, number: Any, n_sums: int
) -> tuple[list[Any], Any]:
    """The terms of the features start to stop, added in `width` partial sums; and where they end."""
    kind = ir.VectorType(number, width) if width > 1 else number
    zero, fma = ir.Constant(kind, [0.0] * width if width > 1 else 0.0), _fma(builder, kind)

    def add(feature: Any, sums: list[Any]) -> list[Any]:
        products = terms(*(_load(builder, row, feature, width, kind) for row in rows))
        return [builder.call(fma, [a, b, total]) for (a, b), total in zip(products, sums, strict=True)]

    return sum_up(builder, start, stop, width, [zero] * n_sums, add)


def _fma(builder: Any, kind: Any) -> Any:
    """The function that adds a product to a sum with one rounding."""
    is_vector = isinstance(kind, ir.VectorType)
    bits = "f32" if (kind.element if is_vector else kind) == FLOAT else "f64"
    name = f"llvm.fma.v{kind.count}{bits}" if is_vector else f"llvm.fma.{bits}"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)


def _load(builder: Any, row: Any, feature: Any, width: int, kind: Any) -> Any:
    """Features of a row, converted to the numbers that are computed with."""
    stored = ir.VectorType(FLOAT, width) if width > 1 else FLOAT
    loaded = builder.load(builder.bitcast(builder.gep(row, [feature]), stored.as_pointer()))
    loaded.align = 4
    return loaded if stored == kind else builder.fpext(loaded, kind)


def _sums(builder: Any, vectors: list[Any]) -> list[Any]:
    """The sum of each vector: one half is added to the other until one number is left.

    Halves of several vectors are added by one instruction.
    """
    add = builder.add if vectors[0].type.element == INTEGER else builder.fadd
    n_sums, length = len(vectors), vectors[0].type.count  # of what is left of each vector
    while length > 1:
        length //= 2
        if len(vectors) % 2:
            vectors = [add(*_halves(builder, one, one, length, one.type.count)) for one in vectors]
        else:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [add(*_halves(builder, a, b, length, 2 * a.type.count)) for a, b in pairs]
    place = [(vector, n) for vector in vectors for n in range(vector.type.count)]
    return [builder.extract_element(vector, ir.Constant(INTEGER, n)) for vector, n in place[:n_sums]]


def _halves(builder: Any, a: Any, b: Any, length: int, n_lanes: int) -> list[Any]:
    """The first and the second halves, `length` long, of all that is in the first `n_lanes` lanes of two vectors."""
    firsts = [lane for lane in range(n_lanes) if lane % (2 * length) < length]
    kind = ir.VectorType(INTEGER, len(firsts))
    return [builder.shuffle_vector(a, b, ir.Constant(kind, [lane + shift for lane in firsts])) for shift in (0, length)]
