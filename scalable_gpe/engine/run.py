"""Where one computation runs: its home, its workers, its memory."""

from dataclasses import dataclass, field
from typing import Any

from scalable_gpe.engine.blocks import Workers, current_cuts
from scalable_gpe.engine.tables import Home, Memory, block_rows

SAFETY = 32 * 2**20  # bytes left to the interpreter's own comings and goings


@dataclass
class Run:
    """Home, workers and memory of a computation; every noun of the library holds one."""

    home: Home = field(default_factory=Memory)
    workers: Workers = field(default_factory=Workers)
    memory_limit: int | None = None
    sweeps: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def block_rows(self, n_rows: int) -> int:
        """Rows of a block for so many points."""
        return current_cuts().block_rows or block_rows(n_rows)

    def spare_bytes(self) -> int:
        """Memory that a stage may still take: what the limit, or the machine, leaves beside this process."""
        import psutil

        if self.memory_limit is None:
            return int(0.6 * psutil.virtual_memory().available)
        return max(0, self.memory_limit - psutil.Process().memory_info().rss - SAFETY)

    def count_sweep(self, kind: str) -> None:
        """Count one pass over all blocks of K."""
        self.sweeps[kind] = self.sweeps.get(kind, 0) + 1

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a running computation cannot be pickled; use a store and scalable_gpe.open in its place")


def open_home(store: Any, *, read_only: bool = False) -> Home:
    """Memory for None, else the zarr store at a path."""
    if store is None:
        return Memory()
    from scalable_gpe.engine.store import Store

    return Store(store, read_only=read_only)
