"""One row of a sparse matrix times some columns of a dense one, in vector registers.

numba keeps sums of unknown length in memory, which costs a factor of 2.5: so this is in the compiler's own language.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from scalable_gpe.loops.compiled import njit
from scalable_gpe.loops.registers import CACHE_LINE, DOUBLE, FLOAT, INDEX, prefetch, splat, sum_up

_AHEAD = 12  # entries between a prefetch and its use


def _product_of(width: int) -> Any:
    """Build ``f(data, indices, start, stop, Z, column, out)``: one row of K times `width` columns.

    ``out[column + c] = sum_e data[e] * Z[indices[e], column + c]`` in float64.
    """

    @intrinsic
    def row_product(typing_context, data, indices, start, stop, Z, column, out):
        return types.void(data, indices, start, stop, Z, column, out), code

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        single = signature.args[4].dtype == types.float32
        data, indices, Z, out = (
            context.make_array(signature.args[k])(context, builder, values[k]) for k in (0, 1, 4, 6)
        )
        start, stop, column = (context.cast(builder, values[k], signature.args[k], types.int64) for k in (2, 3, 5))
        n_columns = builder.extract_value(Z.shape, 1)
        last = builder.sub(builder.extract_value(indices.shape, 0), ir.Constant(INDEX, 1))
        kind, stored = ir.VectorType(DOUBLE, width), ir.VectorType(FLOAT if single else DOUBLE, width)
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fmuladd.v{width}f64"
        )

        def row_of(entry: Any) -> Any:
            row = builder.sext(builder.load(builder.gep(indices.data, [entry])), INDEX)
            return builder.gep(Z.data, [builder.add(builder.mul(row, n_columns), column)])

        def add(entry: Any, sums: list[Any]) -> list[Any]:
            ahead = builder.add(entry, ir.Constant(INDEX, _AHEAD))
            ahead = builder.select(builder.icmp_signed("<", ahead, last), ahead, last)
            _prefetch_row(builder, row_of(ahead), width, 4 if single else 8)
            weight = builder.load(builder.gep(data.data, [entry]))
            if signature.args[0].dtype == types.float32:
                weight = builder.fpext(weight, DOUBLE)
            row = builder.load(builder.bitcast(row_of(entry), stored.as_pointer()), align=4 if single else 8)
            if single:  # the product of two float32 is exact in float64, fused or not
                row = builder.fpext(row, kind)
            return [builder.call(multiply_add, [splat(builder, weight, kind), row, sums[0]])]

        (total,), _ = sum_up(builder, start, stop, 1, [ir.Constant(kind, [0.0] * width)], add)
        target = builder.bitcast(builder.gep(out.data, [column]), kind.as_pointer())
        builder.store(total, target, align=8)
        return context.get_dummy_value()

    return row_product


def _prefetch_row(builder: Any, row: Any, width: int, itemsize: int) -> None:
    """Prefetch all cache lines of a row; it may begin inside a line, and then ends in one line more."""
    for offset in sorted({*range(0, width, CACHE_LINE // itemsize), width - 1}):
        prefetch(builder, builder.gep(row, [ir.Constant(INDEX, offset)]), cache=1)


_product_32, _product_16, _product_8, _product_4, _product_2, _product_1 = map(_product_of, (32, 16, 8, 4, 2, 1))


@njit(nogil=True, cache=True, inline="always")
def row_product(data, indices, start, stop, Z, out):
    """``out = sum_e data[e] * Z[indices[e]]`` over the entries of a row, in float64.

    Each call for some columns reads all entries, so calls may overlap: 10 columns are 8, and the last 4 with two again.
    """
    width = Z.shape[1]
    column = 0
    while column < width:
        left = width - column
        if left > 16 and width >= 32:
            column = min(column, width - 32)
            _product_32(data, indices, start, stop, Z, column, out)
            column += 32
        elif left > 8 and width >= 16:
            column = min(column, width - 16)
            _product_16(data, indices, start, stop, Z, column, out)
            column += 16
        elif left > 4 and width >= 8:
            column = min(column, width - 8)
            _product_8(data, indices, start, stop, Z, column, out)
            column += 8
        elif left > 2 and width >= 4:
            column = min(column, width - 4)
            _product_4(data, indices, start, stop, Z, column, out)
            column += 4
        elif left > 1:
            _product_2(data, indices, start, stop, Z, column, out)
            column += 2
        else:
            _product_1(data, indices, start, stop, Z, column, out)
            column += 1
