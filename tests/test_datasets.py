"""Point sets: the paper's formulas, rows that depend on seed and row number only, and real difficulty."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist

from scalable_gpe import datasets, random_shapes, sketch_matrix

SETS = {
    "circle": (datasets.circle, {"noise": 0.1}, 2),
    "circle_with_outliers": (datasets.circle_with_outliers, {}, 2),
    "torus": (datasets.torus, {}, 4),
    "torus_in_9": (datasets.torus, {"n_features": 9, "noise": 0.01, "dtype": "float32"}, 9),
    "klein_bottle": (datasets.klein_bottle, {}, 4),
    "point_clouds": (datasets.point_clouds, {"n_features": 5}, 5),
    "patches": (datasets.patches, {}, 50),
    "branches": (datasets.branches, {}, 30),
    "patches_3_in_7": (datasets.patches, {"n_features": 7, "dimension": 3, "n_patches": 2}, 7),
}


@pytest.fixture(params=SETS)
def dataset(request):
    return SETS[request.param]


@pytest.mark.parametrize("rows", [slice(0, 1), slice(8_190, 8_195), slice(None, None, 701), [9_999, 3, 3], []])
def test_rows_alone_equal_rows_of_the_whole(dataset, rows):
    make, parameters, width = dataset
    whole = make(10_000, random_state=3, **parameters)
    part = make(10_000, random_state=3, rows=rows, **parameters)
    assert whole.shape == (10_000, width)
    assert part.dtype == whole.dtype
    assert (part == whole[rows if isinstance(rows, slice) else np.array(rows, int)]).all()


def test_seeds_matter_and_repeat(dataset):
    make, parameters, _ = dataset
    first, again, other = (make(50, random_state=seed, **parameters) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any(axis=1).mean() > 0.9
    assert len(np.unique(first, axis=0)) == 50


def test_a_longer_set_begins_with_the_shorter(dataset):
    make, parameters, _ = dataset
    if make is not datasets.circle_with_outliers:  # its last rows are the outliers
        assert (make(90, **parameters)[:50] == make(50, **parameters)).all()


def test_circle():
    X = datasets.circle(20_000)
    np.testing.assert_allclose(np.hypot(*X.T), 1)
    quadrant = np.histogram(np.arctan2(X[:, 1], X[:, 0]), 8, (-np.pi, np.pi))[0]
    assert np.abs(quadrant - 2500).max() < 5 * np.sqrt(2500)


def test_noise_is_the_root_mean_square_displacement():
    clean, noisy = (datasets.torus(20_000, 10, noise=noise) for noise in (0, 0.3))
    squares = ((noisy - clean) ** 2).sum(axis=1)
    assert abs(np.sqrt(squares.mean()) / 0.3 - 1) < 5 * np.sqrt(2 / 10 / 20_000)


def test_circle_with_outliers():
    X = datasets.circle_with_outliers(200)
    assert X.shape == (200, 2)
    assert X[-2:].tolist() == [[0, 3], [3, 0]]
    np.testing.assert_allclose(np.hypot(*X[:-2].T), 1)
    assert datasets.circle_with_outliers(10, [[7, 7]])[-1].tolist() == [7, 7]


def test_torus():
    X = datasets.torus(2_000, ratio=2.5)
    np.testing.assert_allclose(np.hypot(X[:, 0], X[:, 1]), 1)
    np.testing.assert_allclose(np.hypot(X[:, 2], X[:, 3]), 2.5)
    u, v = np.arctan2(X[:, 1], X[:, 0]), np.arctan2(X[:, 3], X[:, 2])
    assert abs(np.cos(u - v).mean()) < 5 * np.sqrt(0.5 / 2_000)


def test_torus_in_more_features_keeps_all_distances():
    np.testing.assert_allclose(pdist(datasets.torus(60, 30)), pdist(datasets.torus(60)), rtol=1e-12)


def test_klein_bottle():
    a, b = 10, 5
    X = datasets.klein_bottle(500, a=a, b=b)
    radius, lift = np.hypot(X[:, 0], X[:, 1]), np.hypot(X[:, 2], X[:, 3])
    np.testing.assert_allclose((radius - a) ** 2 + lift**2, b**2)
    u = np.arctan2(X[:, 1], X[:, 0])
    along = X[:, 2] * np.sin(u / 2) - X[:, 3] * np.cos(u / 2)  # the fibre turns half as fast as the round trip
    np.testing.assert_allclose(along, 0, atol=1e-12)


def test_point_clouds():
    X = datasets.point_clouds(40_000, 3, n_clouds=1, separation=6.0)
    centre = X.mean(axis=0)
    assert abs(np.linalg.norm(centre) - 6) < 5 / np.sqrt(40_000)
    np.testing.assert_allclose(np.cov(X.T), np.eye(3), atol=5 * np.sqrt(2 / 40_000))
    spread = datasets.point_clouds(4_000, 2, n_clouds=3, separation=40.0)
    labels = np.unique(np.round(np.arctan2(spread[:, 1], spread[:, 0]) * 40 / 12), return_counts=True)[1]
    assert len(labels[labels > 100]) >= 3


@pytest.mark.parametrize("dimension", [2, 4])
def test_patches_have_their_intrinsic_dimension(dimension):
    X = datasets.patches(40_000, 20, dimension=dimension, noise=0.0)
    distances, _ = cKDTree(X).query(X[:400], k=33)
    estimate = np.log(2) / np.log(np.median(distances[:, 32]) / np.median(distances[:, 16]))
    assert abs(estimate - dimension) < 0.15 * dimension


def test_patches_are_curved():
    """A patch of dimension 2 fills far more than two linear dimensions."""
    X = datasets.patches(5_000, 20, dimension=2, n_patches=1, noise=0.0).astype(float)
    spread = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    assert (spread[2:6] > 0.05 * spread[0]).all()
    assert (spread[6:] < 1e-3 * spread[0]).all()  # float32 rounding


def test_patches_touch():
    """All patches are connected: the graph of nearest neighbours has one component."""
    from scipy.sparse.csgraph import connected_components

    X = datasets.patches(20_000, 10, dimension=2, n_patches=6, noise=0.0)
    edges = cKDTree(X).sparse_distance_matrix(cKDTree(X), 0.05)
    labels = connected_components(edges)[1]
    assert np.bincount(labels).max() > 0.99 * len(X)


def test_patches_differ_in_density_and_come_in_random_order():
    shape = random_shapes.Patches(0, 10, 3, 6)
    share = np.diff(shape.cumulative, prepend=0)
    assert 1.2 < share.max() / share.min() <= 3
    numbers = random_shapes.uniforms(0, np.arange(20_000), 4)[:, 0]
    patch = np.searchsorted(shape.cumulative[:-1], numbers, side="right")
    assert np.abs(np.bincount(patch) / 20_000 - share).max() < 5 * np.sqrt(0.25 / 20_000)
    repeated = (patch[1:] == patch[:-1]).mean()
    assert abs(repeated - (share**2).sum()) < 5 * np.sqrt(0.25 / 20_000)


def test_points_are_not_correlated_with_the_sketch():
    """Both use the same random_state, but their numbers must be independent."""
    X = datasets.point_clouds(20_000, 4, n_clouds=1)
    G = sketch_matrix(20_000, 4)
    assert np.abs((X - X.mean(axis=0)).T @ G / 20_000).max() < 5 / np.sqrt(20_000)


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
@pytest.mark.parametrize("block_rows", [64, 700, 5_000])
def test_write_equals_the_whole(tmp_path, suffix, block_rows):
    path = tmp_path / f"X{suffix}"
    shape = datasets.write(path, datasets.patches, 2_000, block_rows=block_rows, n_features=8, random_state=4)
    if suffix == ".npy":
        X = np.load(path)
    else:
        zarr = pytest.importorskip("zarr")
        X = zarr.open_array(str(path))[:]
    whole = datasets.patches(2_000, 8, random_state=4)
    assert shape == X.shape
    assert X.dtype == whole.dtype
    assert (whole == X).all()


def test_blocks_of_a_fresh_seed_belong_together():
    blocks = list(datasets.blocks(datasets.point_clouds, 300, block_rows=100, n_clouds=1, random_state=None))
    centres = np.array([block.mean(axis=0) for block in blocks])
    assert np.abs(centres - centres.mean(axis=0)).max() < 5 / np.sqrt(100)


def test_write_refuses_before_it_makes_anything(tmp_path):
    path = tmp_path / "X.npy"
    path.write_bytes(b"mine")
    with pytest.raises(ValueError, match="path must not exist yet"):
        datasets.write(path, datasets.circle, 10)
    assert path.read_bytes() == b"mine"
    with pytest.raises(ValueError, match=r"path must end in \.npy or \.zarr"):
        datasets.write(tmp_path / "X.csv", datasets.circle, 10)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: datasets.circle(0), ValueError, "n_rows must be at least 1"),
        (lambda: datasets.circle(2.5), TypeError, "n_rows must be a whole number"),
        (lambda: datasets.circle(5, noise=-1), ValueError, "noise must be a positive"),
        (lambda: datasets.circle(5, rows=[5]), ValueError, "rows must lie between 0 and 4"),
        (lambda: datasets.circle(5, random_state="a"), TypeError, "random_state must be"),
        (lambda: datasets.circle_with_outliers(2), ValueError, "n_rows must be at least 3"),
        (lambda: datasets.circle_with_outliers(9, [[1.0]]), ValueError, "outliers must have 2 columns"),
        (lambda: datasets.circle_with_outliers(9, [[np.nan, 1.0]]), ValueError, "outliers must be finite"),
        (lambda: datasets.torus(5, 3), ValueError, "n_features must be at least 4"),
        (lambda: datasets.torus(5, ratio=0), ValueError, "ratio must be a positive"),
        (lambda: datasets.torus(5, dtype="int8"), ValueError, "dtype must be one of"),
        (lambda: datasets.klein_bottle(5, a=0), ValueError, "a must be a positive"),
        (lambda: datasets.klein_bottle(5, b="x"), TypeError, "b must be a positive"),
        (lambda: datasets.point_clouds(5, 0), ValueError, "n_features must be at least 1"),
        (lambda: datasets.point_clouds(5, n_clouds=0), ValueError, "n_clouds must be at least 1"),
        (lambda: datasets.point_clouds(5, separation=0), ValueError, "separation must be a positive"),
        (lambda: datasets.patches(5, 4), ValueError, "n_features must be at least 5"),
        (lambda: datasets.patches(5, dimension=0), ValueError, "dimension must be at least 1"),
        (lambda: datasets.patches(5, n_patches=0), ValueError, "n_patches must be at least 1"),
        (lambda: datasets.blocks(datasets.circle, 5, block_rows=0), ValueError, "block_rows must be at least 1"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_the_truth_of_branches_belongs_to_its_points():
    """Neighbouring points without noise lie on one curve or meet where two curves meet; time grows as points move."""
    n_rows = 4000
    X = datasets.branches(n_rows, noise=1e-6, dtype="float64")
    parts, time = datasets.branches_truth(n_rows)
    assert sorted(set(parts)) == [
        "branch a",
        "branch b",
        "branch c",
        "branch d",
        "cycle",
        "end b",
        "end c",
        "end d",
        "stem",
    ]
    for part in ("stem", "branch a", "branch d"):
        rows = np.flatnonzero(parts == part)
        rows = rows[np.argsort(time[rows])]
        steps = np.linalg.norm(np.diff(X[rows], axis=0), axis=1)
        np.testing.assert_allclose(steps.sum(), time[rows[-1]] - time[rows[0]], rtol=0.01)
    for end, branch in (("end b", "branch b"), ("end c", "branch c")):
        last = X[parts == branch][np.argmax(time[parts == branch])]
        assert np.linalg.norm(X[parts == end] - last, axis=1).max() < 1
    np.testing.assert_array_equal(datasets.branches_truth(n_rows, rows=[5, 3])[1], time[[5, 3]])
