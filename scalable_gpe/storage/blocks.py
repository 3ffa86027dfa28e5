"""Blocks and ranges of rows."""

_SMALL, _MOST = 8192, 65_536  # rows of a block


def block_rows(n_rows: int) -> int:
    """Rows of one block: a function of the number of rows alone, so that blocks on disk never change.

    A power of two, because sums are made of chunks of 8192 rows. A million rows have blocks for 62 threads.

    Examples
    --------
    >>> block_rows(3_000), block_rows(1_000_000), block_rows(100_000_000)
    (1024, 16384, 65536)
    """
    rows = 1024
    while rows * (32 if rows < _SMALL else 64) < n_rows and rows < _MOST:
        rows *= 2
    return rows


def ranges(n_rows: int, step: int) -> list[tuple[int, int]]:
    """Cut rows into ranges of `step` rows.

    Examples
    --------
    >>> ranges(10, 4)
    [(0, 4), (4, 8), (8, 10)]
    """
    return [(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
