"""What a run takes: memory, disk and sweeps as plain functions of the plan."""

from dataclasses import dataclass

from scalable_gpe.storage.protocol import block_rows

BASE = 300 * 10**6  # interpreter, numpy, scipy, zarr, numba and its compiled loops
_PART_BYTES = 256 * 2**20  # rows and lists of one part of a search: fixed, because the parts shape the result
_PART_ROWS = 2**18
_UNION = 1.6  # entries of K per listed neighbour, diagonal included, as measured


@dataclass(frozen=True)
class ProblemSize:
    """The numbers that decide what a run takes."""

    n_rows: int
    n_features: int
    n_neighbors: int
    n_components: int
    n_powers: int = 1
    itemsize: int = 4
    stored: bool = True
    resident: bool = False
    remote: bool = False

    @property
    def nnz(self) -> int:
        """Entries of K, about."""
        return int(self.n_rows * (1 + _UNION * self.n_neighbors))


def vectors(shape: ProblemSize) -> int:
    """Bytes of what every stage keeps per row: numbers of rows, degrees, scales and their temporaries."""
    return 72 * shape.n_rows


def column(shape: ProblemSize) -> int:
    """Bytes of one column of all panels."""
    return shape.n_rows * shape.itemsize * n_panels(shape.n_powers, remote=shape.remote)


def n_panels(n_powers: int, *, remote: bool) -> int:
    """Panels of one sweep: two vectors and one sum per power; a worker of a cluster has a new one beside each old."""
    return 3 + 2 * n_powers if remote else 2 + n_powers


def blocks_in_flight(shape: ProblemSize, n_jobs: int) -> int:
    """Bytes of the blocks of K that are being read and multiplied."""
    block = 8 * min(block_rows(shape.n_rows), shape.n_rows) * (1 + _UNION * shape.n_neighbors)
    return in_flight(int(block), n_jobs)


def in_flight(block_bytes: int, n_jobs: int) -> int:
    """Bytes of blocks at work: for each thread one that is multiplied and one that is read ahead, and their files."""
    return 3 * (n_jobs + 1) * block_bytes


def part_rows(n_features: int, n_neighbors: int) -> int:
    """Rows of one part of a search, whatever the limit is."""
    return min(_PART_ROWS, _PART_BYTES // _row_of_part(n_features, n_neighbors))


def _row_of_part(n_features: int, n_neighbors: int) -> int:
    """Bytes that the search of a part takes for each of its rows: the row, six numbers for each neighbour."""
    return 4 * n_features + 24 * n_neighbors


def part_bytes(shape: ProblemSize) -> int:
    """Bytes of the search of one part."""
    rows = min(shape.n_rows, part_rows(shape.n_features, shape.n_neighbors))
    return rows * _row_of_part(shape.n_features, shape.n_neighbors)


def graph_bytes(shape: ProblemSize) -> int:
    """Bytes of the search when all rows are held at once: rows, lists and their exchange."""
    return shape.n_rows * (8 * shape.n_features + 24 * shape.n_neighbors + 40)


def smallest_limit(shape: ProblemSize, n_jobs: int = 2) -> int:
    """Least memory_limit that a run can keep: one part of the search; one column at a time, no block of K resident."""
    least = BASE + vectors(shape) + max(part_bytes(shape), column(shape) + blocks_in_flight(shape, n_jobs))
    if shape.resident:
        least += 4 * shape.n_rows * shape.n_features
    return least if shape.stored else least + 8 * shape.nnz + 8 * shape.n_rows * shape.n_neighbors


def comfortable(shape: ProblemSize, n_jobs: int = 2) -> int:
    """Memory with which nothing is read twice: all columns at once, K resident."""
    whole = BASE + vectors(shape) + shape.n_components * column(shape) + 12 * shape.nnz
    return max(whole, BASE + graph_bytes(shape)) + blocks_in_flight(shape, n_jobs)


def disk(shape: ProblemSize) -> int:
    """Bytes of a store: rows, lists, edges with distances and weights, columns carried, embeddings."""
    per_row = 4 * shape.n_features + 8 * shape.n_neighbors + 40
    columns = shape.n_powers * shape.n_components * (shape.itemsize + 4)
    return int(1.1 * (shape.n_rows * (per_row + columns) + 12 * shape.nnz))
