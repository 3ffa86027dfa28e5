"""Pieces of rows: whole chunks of sums and whole shards of panels, for any number of rows."""

import pytest

from scalable_gpe.execution.context import local_context
from scalable_gpe.execution.sums import CHUNK, row_pieces
from scalable_gpe.storage.blocks import block_rows


@pytest.mark.parametrize("n_rows", [1, 3_000, 100_000, 300_000, 524_289, 1_000_000, 1_048_577, 3_000_000, 10_000_000])
def test_pieces_are_whole_chunks_and_whole_shards(n_rows):
    pieces = row_pieces(local_context(n_rows), n_rows)
    assert pieces[0][0] == 0 and pieces[-1][1] == n_rows
    for start, _ in pieces:
        assert start % CHUNK == 0 and start % block_rows(n_rows) == 0


def test_a_million_rows_have_blocks_for_many_threads():
    assert -(-1_000_000 // block_rows(1_000_000)) >= 60
