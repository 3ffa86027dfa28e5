"""Connected components of a kernel: points between which heat can flow."""

import numpy as np

from scalable_gpe.heat.kernel import SparseKernel

_NO_WEIGHT = 1e-12  # of the diagonal, which is 1: a smaller weight connects nothing


def component_labels(kernel: SparseKernel) -> np.ndarray:
    """Label of the component of each point (storage order): 0, 1, ... in the order of their first points."""
    from scalable_gpe.loops import sparse

    parent = np.arange(kernel.edges.n_points, dtype=np.int32)
    for number in range(kernel.edges.n_blocks):
        first, indptr, indices, weights = kernel.edges.block(number)
        sparse.unite(indptr, indices, -weights, np.float32(-_NO_WEIGHT), first, parent)
    while True:
        above = parent[parent]
        if np.array_equal(above, parent):
            break
        parent = above
    labels: np.ndarray = np.unique(parent, return_inverse=True)[1]
    return labels
