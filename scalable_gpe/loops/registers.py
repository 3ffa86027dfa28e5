"""Pieces of vector code in the compiler's own language: loops with their sums in registers, prefetches."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

FLOAT, DOUBLE, INDEX = ir.FloatType(), ir.DoubleType(), ir.IntType(64)
INTEGER, BYTE = ir.IntType(32), ir.IntType(8)
CACHE_LINE = 64  # bytes


def sum_up(
    builder: Any, start: Any, stop: Any, step: int, zeros: list[Any], add: Callable[[Any, list[Any]], list[Any]]
) -> tuple[list[Any], Any]:
    """Loop from `start` to `stop` with ``sums = add(index, sums)``, which begin as `zeros`; return them and the end."""
    before = builder.block
    head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)

    builder.position_at_end(head)
    index, sums = builder.phi(start.type), [builder.phi(zero.type) for zero in zeros]
    builder.cbranch(builder.icmp_signed("<", index, stop), body, end)

    builder.position_at_end(body)
    added = add(index, sums)
    following = builder.add(index, ir.Constant(start.type, step))
    after = builder.block
    builder.branch(head)

    for phi, first, later in zip([index, *sums], [start, *zeros], [following, *added], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, after)
    builder.position_at_end(end)
    return sums, index


def splat(builder: Any, value: Any, kind: Any) -> Any:
    """Broadcast a number to all lanes of a vector."""
    empty, none = ir.Constant(kind, ir.Undefined), ir.Constant(INTEGER, 0)
    first = builder.insert_element(empty, value, none)
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(INTEGER, kind.count), [0] * kind.count))


def prefetch(builder: Any, address: Any, cache: int) -> None:
    """Prefetch the cache line of an address for reading, into the first or the second cache."""
    pointer = BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, INTEGER, INTEGER, INTEGER])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    reading, locality, data = (ir.Constant(INTEGER, number) for number in (0, 4 - cache, 1))
    builder.call(function, [builder.bitcast(address, pointer), reading, locality, data])
