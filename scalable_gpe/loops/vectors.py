"""Squared distances in vector registers, with the same bits wherever they are computed.

The search needs the same distance for a pair of rows whichever loop compares them, in whichever order, because equal
distances are how it knows a pair that it has seen. A compiler that vectorises a sum chooses the order of its terms for
each loop. So these functions are written in the compiler's own language: 16 partial sums, then 4 for the rest, then
single terms, added in a fixed order. One of four distances of 50 to 100 features takes 6 to 7 ns.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FLOAT, _DOUBLE, _INDEX = ir.FloatType(), ir.DoubleType(), ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()
Terms = Callable[..., list[tuple[Any, Any]]]


@intrinsic
def four_squares(typing_context, X, row, a, b, c, d):
    """Squared distances of a row to four others, float32."""

    def code(context, builder, signature, values):
        return cgutils.pack_array(builder, _squares(context, builder, signature, values, _FLOAT))

    return types.UniTuple(types.float32, 4)(X, *[types.intp] * 5), code


@intrinsic
def exact_square(typing_context, X, row, other):
    """The squared distance of two rows, in float64."""

    def code(context, builder, signature, values):
        return _squares(context, builder, signature, values, _DOUBLE)[0]

    return types.float64(X, types.intp, types.intp), code


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

        return _summed(builder, rows, n_features, product, 1, _FLOAT)[0]

    return types.float32(X, types.intp, mean, direction), code


@intrinsic
def fetch(typing_context, X, row):
    """Prefetch a row into the second cache."""

    def code(context, builder, signature, values):
        array = context.make_array(signature.args[0])(context, builder, values[0])
        n_features = builder.extract_value(array.shape, 1)
        start = builder.bitcast(builder.gep(array.data, [builder.mul(values[1], n_features)]), _BYTES)
        n_bytes = builder.mul(n_features, ir.Constant(_INDEX, signature.args[0].dtype.bitwidth // 8))
        kind = ir.FunctionType(ir.VoidType(), [_BYTES, ir.IntType(32), ir.IntType(32), ir.IntType(32)])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        reading, second_cache, data = (ir.Constant(ir.IntType(32), number) for number in (0, 2, 1))
        none, line = ir.Constant(_INDEX, 0), ir.Constant(_INDEX, 64)
        with cgutils.for_range_slice(builder, none, n_bytes, line, _INDEX) as (at, _):
            builder.call(prefetch, [builder.gep(start, [at]), reading, second_cache, data])
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


def _summed(builder: Any, rows: list[Any], n_features: Any, terms: Terms, n_sums: int, number: Any) -> list[Any]:
    """Sums over features of the products that `terms` gives for the values of some rows at a feature."""
    totals, start = [ir.Constant(number, 0.0)] * n_sums, ir.Constant(_INDEX, 0)
    for width in (16, 4, 1):
        stop = builder.and_(n_features, ir.Constant(_INDEX, -width))
        sums, start = _partial_sums(builder, rows, start, stop, width, terms, n_sums, number)
        totals = [builder.fadd(total, _sum(builder, one, width)) for total, one in zip(totals, sums, strict=True)]
    return totals


def _partial_sums(
    builder: Any, rows: list[Any], start: Any, stop: Any, width: int, terms: Terms, n_sums: int, number: Any
) -> tuple[list[Any], Any]:
    """The terms of the features start to stop, added in `width` partial sums; and where they end."""
    kind = ir.VectorType(number, width) if width > 1 else number
    zero = ir.Constant(kind, [0.0] * width if width > 1 else 0.0)
    bits = "f32" if number is _FLOAT else "f64"
    name = f"llvm.fma.v{width}{bits}" if width > 1 else f"llvm.fma.{bits}"
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    before = builder.block
    head, body, end = (builder.append_basic_block(f"{part}{width}") for part in ("head", "body", "end"))
    builder.branch(head)

    builder.position_at_end(head)
    feature, sums = builder.phi(_INDEX), [builder.phi(kind) for _ in range(n_sums)]
    builder.cbranch(builder.icmp_signed("<", feature, stop), body, end)

    builder.position_at_end(body)
    products = terms(*(_load(builder, row, feature, width, kind) for row in rows))
    added = [builder.call(fma, [a, b, total]) for (a, b), total in zip(products, sums, strict=True)]
    following = builder.add(feature, ir.Constant(_INDEX, width))
    builder.branch(head)

    for phi, first, later in zip([feature, *sums], [start] + [zero] * n_sums, [following, *added], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, body)
    builder.position_at_end(end)
    return sums, feature


def _load(builder: Any, row: Any, feature: Any, width: int, kind: Any) -> Any:
    """Features of a row, converted to the numbers that are computed with."""
    stored = ir.VectorType(_FLOAT, width) if width > 1 else _FLOAT
    loaded = builder.load(builder.bitcast(builder.gep(row, [feature]), stored.as_pointer()))
    loaded.align = 4
    return loaded if stored == kind else builder.fpext(loaded, kind)


def _sum(builder: Any, vector: Any, width: int) -> Any:
    """The sum of a vector: one half added to the other until one number is left."""
    while width > 1:
        width //= 2
        halves = [
            builder.shuffle_vector(
                vector,
                ir.Constant(vector.type, ir.Undefined),
                ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(first, first + width))),
            )
            for first in (0, width)
        ]
        vector = builder.fadd(*halves)
        if width == 1:
            vector = builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))
    return vector
