"""Connected components, block by block, against scipy's."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

import scalable_gpe as gpe
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.execution.panels import Panels
from scalable_gpe.graph.edges import component_roots, count_components


def kernel_of(matrix, block_rows):
    with block_sizes(block_rows=block_rows):
        return gpe.heat_kernel(matrix, normalization="symmetric").kernel


def symmetric(n_rows, n_entries, seed):
    """A random symmetric matrix with a unit diagonal."""
    rng = np.random.default_rng(seed)
    at = tuple(rng.integers(0, n_rows, (2, n_entries)))
    upper = csr_matrix((rng.uniform(size=n_entries), at), shape=(n_rows, n_rows))
    upper = upper.maximum(upper.T).tolil()
    upper.setdiag(1)
    return csr_matrix(upper)


@pytest.mark.parametrize("n_entries", [0, 60, 300, 900])
@pytest.mark.parametrize("block_rows", [16, 100, 1024])
def test_components_are_those_of_scipy(n_entries, block_rows):
    matrix = symmetric(300, n_entries, n_entries)
    count, labels = connected_components(matrix, directed=False)
    first = np.array([np.flatnonzero(labels == label)[0] for label in range(count)])
    kernel = kernel_of(matrix, block_rows)
    with block_sizes(block_rows=block_rows):
        roots = component_roots(kernel.edges, kernel.context, Panels(kernel.context))
        assert count_components(kernel.edges, kernel.context) == count
    np.testing.assert_array_equal(roots.rows(0, 300), first[labels])


def test_edges_that_do_not_join_do_not_count():
    chain = np.diag(np.ones(6)) + np.diag([0.5, 0.1, 0.9, 0.3, 0.7], 1) + np.diag([0.5, 0.1, 0.9, 0.3, 0.7], -1)
    kernel = kernel_of(csr_matrix(chain), 2)
    assert count_components(kernel.edges, kernel.context) == 1
    assert count_components(kernel.edges, kernel.context, lambda block: block.values >= 0.4) == 3
    assert count_components(kernel.edges, kernel.context, lambda block: block.values <= 0.6) == 3
    roots = component_roots(kernel.edges, kernel.context, Panels(kernel.context), lambda block: block.values >= 0.4)
    assert roots.rows(0, 6).tolist() == [0, 0, 2, 2, 4, 4]


def test_a_chain_through_all_blocks_is_one_component():
    """Each block is connected only through others, far away."""
    n_rows = 64
    order = np.random.default_rng(1).permutation(n_rows)
    path = np.zeros((n_rows, n_rows))
    path[order[:-1], order[1:]] = 1
    kernel = kernel_of(csr_matrix(path + path.T + np.eye(n_rows)), 4)
    assert count_components(kernel.edges, kernel.context) == 1
    roots = component_roots(kernel.edges, kernel.context, Panels(kernel.context))
    assert not roots.rows(0, n_rows).any()
