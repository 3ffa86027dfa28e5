"""The union of neighbour lists and their reversals, block by block, against scipy's."""

import numpy as np
import pytest
from scipy.sparse import coo_matrix

from scalable_gpe.loops import sparse

N_ROWS, N_NEIGHBORS = 100, 5


@pytest.fixture
def lists():
    """Lists with a gap at the end of some; an edge may have another length in each direction."""
    rng = np.random.default_rng(0)
    indices = np.array([rng.permutation(np.delete(np.arange(N_ROWS), i))[:N_NEIGHBORS] for i in range(N_ROWS)])
    indices[::7, -1] = -1
    return indices.astype(np.int32), rng.uniform(1, 2, indices.shape).astype(np.float32)


@pytest.mark.parametrize("block_rows", [10, 33, 100, 128])
def test_union_of_the_lists(lists, block_rows):
    indices, distances = lists
    n_blocks, user_row = -(-N_ROWS // block_rows), np.random.default_rng(1).permutation(N_ROWS).astype(np.int32)
    starts = range(0, N_ROWS, block_rows)
    own = [(indices[start : start + block_rows], distances[start : start + block_rows]) for start in starts]
    leaving = [sparse.bucket_edges(*some, start, block_rows, n_blocks) for some, start in zip(own, starts, strict=True)]
    blocks = indices // block_rows
    crossing = (indices >= 0) & (blocks != np.arange(N_ROWS)[:, None] // block_rows)
    assert sum(len(targets) for _, targets, _, _ in leaving) == crossing.sum()  # the others are not sent anywhere
    expected = reference(indices, distances)
    for number, (some, start) in enumerate(zip(own, starts, strict=True)):
        into = [
            np.concatenate([one[field][one[0][number] : one[0][number + 1]] for one in leaving]) for field in (1, 2, 3)
        ]
        indptr, columns, lengths = sparse.union_rows(*some, *into, start, user_row)
        for i in range(len(some[0])):
            at = slice(indptr[i], indptr[i + 1])
            assert (np.diff(user_row[columns[at]]) > 0).all()
            assert dict(zip(columns[at].tolist(), lengths[at].tolist(), strict=True)) == expected[start + i]


def reference(indices, distances):
    """Columns and lengths of each row: the smaller length of both directions, and 0 on the diagonal."""
    rows = np.repeat(np.arange(N_ROWS), N_NEIGHBORS)[indices.ravel() >= 0]
    columns, lengths = indices[indices >= 0], distances[indices >= 0]
    one_way = coo_matrix((1 / lengths.astype(np.float64), (rows, columns)), shape=(N_ROWS, N_ROWS)).tocsr()
    both = one_way.maximum(one_way.T).tocsr()  # the larger inverse is the smaller length
    found = []
    for i in range(N_ROWS):
        at = slice(both.indptr[i], both.indptr[i + 1])
        found.append(
            dict(zip(both.indices[at].tolist(), np.float32(1 / both.data[at]).tolist(), strict=True)) | {i: 0.0}
        )
    return found
