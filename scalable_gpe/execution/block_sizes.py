"""Sizes of blocks and panels, which tests vary and users never see; only `n_parts` changes results."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class BlockSizes:
    """Sizes that override those from the number of rows and the memory plan; None overrides nothing."""

    block_rows: int | None = None
    panel_columns: int | None = None
    resident_bytes: int | None = None
    save_seconds: float | None = None
    maps_arrays: bool | None = None
    n_parts: int | None = None


_DEFAULT = BlockSizes()
_sizes: ContextVar[BlockSizes] = ContextVar("block_sizes", default=_DEFAULT)


@contextmanager
def block_sizes(**changes: Any) -> Iterator[None]:
    """Use other sizes inside the block."""
    token = _sizes.set(replace(_sizes.get(), **changes))
    try:
        yield
    finally:
        _sizes.reset(token)


def current_block_sizes() -> BlockSizes:
    """The sizes in force."""
    return _sizes.get()
