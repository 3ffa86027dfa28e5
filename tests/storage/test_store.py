"""A store: opened again it gives the same results, it refuses foreign input, and it survives interruptions."""

import json
import shutil

import numpy as np
import pytest
import zarr

import scalable_gpe as gpe
from scalable_gpe.errors import StoreError
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.storage.zarr_store import ZarrStore

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
OPTIONS = {"n_neighbors": 7, "n_components": 5, "power": (3, 40)}


@pytest.fixture(scope="module")
def X():
    X = gpe.datasets.torus(500, random_state=0).astype(np.float32)
    X[450:] = X[:50]
    return X


@pytest.fixture
def store(tmp_path):
    return tmp_path / "run.zarr"


def bytes_of(points):
    values = points if isinstance(points, dict) else {0: points}
    return {power: np.asarray(value[:]).tobytes() for power, value in values.items()}


def arrays_in(store):
    return sorted(
        file.parent.relative_to(store).as_posix()
        for file in store.rglob("zarr.json")
        if json.loads(file.read_text())["node_type"] == "array"
    )


def contents(store):
    return {
        path.relative_to(store).as_posix(): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()
    }


# --- the same again -------------------------------------------------------------------------------


def test_opened_again_everything_is_the_same(X, store):
    made = gpe.embed(X, store=store, **OPTIONS)
    held = gpe.embed(X, **OPTIONS)
    opened = gpe.open(store)
    assert bytes_of(made.points) == bytes_of(opened.points) == bytes_of(held.points)
    assert all(isinstance(points, zarr.Array) for points in opened.points.values())
    assert all(points.shape == (500, 5) and points.dtype == np.float32 for points in opened.points.values())
    report = {**opened.report}
    assert report == {**made.report}
    assert {**opened.parameters} == {**made.parameters}
    assert (opened.graph.indices == held.graph.indices).all()
    assert (opened.graph.distances == held.graph.distances).all()
    assert opened.graph.recall == held.graph.recall
    assert opened.kernel.epsilon == held.kernel.epsilon and opened.kernel.lost_mass == held.kernel.lost_mass
    assert (opened.kernel.to_scipy() != held.kernel.to_scipy()).nnz == 0
    assert (opened.heat.scale == held.heat.scale).all()
    V = np.random.default_rng(0).standard_normal((500, 3))
    assert (opened.heat @ V == held.heat @ V).all()
    table, again = (gpe.epsilon_sweep(graph, [0.1, 1.0]) for graph in (opened.graph, held.graph))
    assert all((table[name] == again[name]).all() for name in table)


def test_the_format_is_plain_zarr(X, store):
    """Anyone can read the embedding, in the order of the input, without this library."""
    result = gpe.embed(X, store=store, **OPTIONS)
    root = zarr.open_group(str(store), mode="r")
    assert root.attrs["format"] == "scalable_gpe" and root.attrs["format_version"] == 2
    assert (root["embedding/40"][:] == np.asarray(result.points[40][:])).all()
    for name in arrays_in(store):
        text = (store / name / "zarr.json").read_text()
        assert "crc32c" in text, name
        metadata = json.loads(text)
        codecs = metadata["codecs"]
        if codecs[0]["name"] == "sharding_indexed":
            assert any(codec["name"] == "crc32c" for codec in codecs[0]["configuration"]["codecs"]), name
            assert any(codec["name"] == "crc32c" for codec in codecs[0]["configuration"]["index_codecs"]), name


def test_files_stay_few(X, tmp_path):
    """One file per shard: more columns or rows of small data make no more of them."""
    few = gpe.embed(X[:400], n_neighbors=5, n_components=2, power=3, store=tmp_path / "few").points
    many = gpe.embed(X[:400], n_neighbors=30, n_components=60, power=3, store=tmp_path / "many").points
    assert few.shape == (400, 2) and many.shape == (400, 60)
    assert len(contents(tmp_path / "few")) == len(contents(tmp_path / "many")) < 50


def test_padding_of_edges_is_not_stored(tmp_path):
    """Room is made for lists whose reversals are all new; most are not."""
    graph = gpe.neighbor_graph(gpe.datasets.torus(20_000), 16, store=tmp_path / "run.zarr")
    for part in ("indices", "lengths"):
        files = (tmp_path / "run.zarr").glob(f"graph/*/edges/{part}/c/**/*")
        stored = sum(path.stat().st_size for path in files if path.is_file())
        assert 4 * graph.edges.nnz < stored < 1.4 * 4 * graph.edges.nnz


def test_a_second_call_adds_nothing_but_what_is_new(X, store):
    gpe.embed(X, store=store, **OPTIONS)
    before = contents(store)
    again = gpe.embed(X, store=store, **OPTIONS)
    after = contents(store)
    assert set(before) == set(after)
    assert all(before[name] == after[name] for name in before if not name.endswith("zarr.json"))
    assert bytes_of(again.points) == bytes_of(gpe.open(store).points)


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.4},
        {"normalization": "symmetric"},
        {"sketch": "bernoulli"},
        {"random_state": 9},
        {"n_neighbors": 9},
        {"precision": "double"},
        {"n_components": 8},
        {"power": 3},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_keeps_what_is_there(X, store, change):
    """Each result is stored under its own key; a second one never overwrites the first."""
    first = gpe.embed(X, store=store, **OPTIONS)
    kept = bytes_of(first.points)
    changed = {**OPTIONS, **change}
    second = gpe.embed(X, store=store, **changed)
    assert bytes_of(second.points) == bytes_of(gpe.embed(X, **changed).points)
    assert bytes_of(first.points) == kept  # the arrays of the first result are unchanged
    assert bytes_of(gpe.open(store).points) == bytes_of(second.points)
    assert bytes_of(gpe.embed(X, store=store, **OPTIONS).points) == kept


def test_only_what_a_change_touches_is_made_again(X, store):
    def stages(**change):
        seen = []
        gpe.embed(X, store=store, progress=lambda stage, *_: seen.append(stage), **{**OPTIONS, **change})
        return set(seen) - {"rows"}

    assert {"edges", "kernel", "heat", "sketch"} <= stages()
    assert not stages() & {"lists", "edges", "recall", "kernel", "heat", "sketch"}
    assert not stages(normalization="symmetric") & {"lists", "edges", "recall", "kernel"}
    seen = stages(epsilon=0.4)
    assert {"kernel", "heat", "sketch"} <= seen and not seen & {"lists", "edges", "recall"}


# --- refused --------------------------------------------------------------------------------------


def test_another_input_is_refused_and_nothing_is_lost(store):
    X = gpe.datasets.torus(1200, random_state=0).astype(np.float32)  # more rows than the fingerprint looks at
    gpe.embed(X, store=store, **OPTIONS)
    before = contents(store)
    with pytest.raises(StoreError, match=r"another input.*n_rows: stored 1200, now 900.*resume=False"):
        gpe.embed(X[:900], store=store, **OPTIONS)
    with pytest.raises(StoreError, match=r"another input.*n_features: stored 4, now 2"):
        gpe.embed(X[:, :2], store=store, **OPTIONS)
    with pytest.raises(StoreError, match=r"another input.*rows of the same shape with other values"):
        gpe.embed(X + 1, store=store, **OPTIONS)
    one_row = X.copy()
    sampled = np.unique(np.linspace(0, 1199, 1024).astype(int))
    one_row[np.setdiff1d(np.arange(1200), sampled)[3]] += 0.25  # a row that the fingerprint does not look at
    with pytest.raises(StoreError, match=r"another input.*other rows differ"):
        gpe.embed(one_row, store=store, **OPTIONS)
    lists = gpe.neighbor_graph(X, 7)
    with pytest.raises(StoreError, match="another input"):
        gpe.embed(neighbors=(lists.indices, lists.distances), store=store, **OPTIONS)
    assert contents(store) == before


def test_a_result_from_before_the_store_was_started_over_is_refused(X, store, tmp_path):
    how = {**OPTIONS, "power": "all"}
    old = gpe.embed(X, store=store, **how)
    gpe.embed(X, store=store, resume=False, **{**how, "random_state": 1})  # arrays of the same names and shapes
    calls = (
        lambda: old.transform(X[:9]),
        lambda: old.pseudotime(0),
        lambda: old.propagate(np.arange(len(X)) % 2),
        lambda: gpe.export(old, tmp_path / "points.npy"),
    )
    for call in calls:
        with pytest.raises(StoreError, match=r"no longer holds the run of this result.*gpe\.open"):
            call()


@pytest.mark.parametrize("resume", [True, False])
def test_a_foreign_directory_is_not_touched(X, tmp_path, resume):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.txt").write_text("meow")
    (tmp_path / "notes.txt").write_text("a file")
    other = zarr.open_group(str(tmp_path / "other.zarr"), mode="w")
    other.create_array("runs", shape=(3,), dtype="f4")
    before = contents(tmp_path)
    for path, words in (("photos", "other contents"), ("notes.txt", "is a file"), ("other.zarr", "not made by")):
        with pytest.raises(StoreError, match=words):
            gpe.embed(X, store=tmp_path / path, resume=resume, **OPTIONS)
    assert contents(tmp_path) == before


def test_another_format_version_is_refused(X, store):
    gpe.embed(X, store=store, **OPTIONS)
    zarr.open_group(str(store)).attrs.update({"format_version": 99})
    for call in (lambda: gpe.open(store), lambda: gpe.embed(X, store=store, **OPTIONS)):
        with pytest.raises(StoreError, match="format version 99, this release reads 2"):
            call()


def test_nothing_to_open(tmp_path, X):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        gpe.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    ZarrStore(tmp_path / "empty")
    with pytest.raises(StoreError, match="holds no finished stage"):
        gpe.open(tmp_path / "empty")


# --- interruptions --------------------------------------------------------------------------------


@pytest.mark.some(4)
@pytest.mark.parametrize("stage", ["rows", "lists", "edges", "recall", "kernel", "heat", "interval", "sketch"])
def test_an_interrupted_run_resumes(X, store, stage):
    """Ctrl-C during any stage: no broken files, and afterwards the bytes of an uninterrupted run."""

    def interrupt(now, done, total):
        if now == stage and done >= total / 2:
            raise KeyboardInterrupt

    with block_sizes(block_rows=170, panel_columns=2):
        with pytest.raises(KeyboardInterrupt):
            gpe.embed(X, store=store, progress=interrupt, n_jobs=1 + len(stage) % 2, **OPTIONS)
        with pytest.raises(StoreError, match=r"holds (an unfinished run|no finished stage)"):
            gpe.open(store)
        assert not list(store.rglob("*.partial"))
        resumed = gpe.embed(X, store=store, **OPTIONS)
        assert bytes_of(resumed.points) == bytes_of(gpe.embed(X, **OPTIONS).points)
        assert bytes_of(gpe.open(store).points) == bytes_of(resumed.points)


def test_a_store_of_other_versions_warns_and_opens(tmp_path):
    from dataclasses import replace

    from scalable_gpe.errors import GPEWarning
    from scalable_gpe.runs import RunRecord
    from scalable_gpe.storage.zarr_store import ZarrStore

    X = gpe.datasets.circle(200)
    first = gpe.embed(X, n_neighbors=6, power=3, store=tmp_path / "s.zarr", progress=False)
    store = ZarrStore(tmp_path / "s.zarr")
    (name,) = store.names("runs")
    record = store.peek(f"runs/{name}", RunRecord)
    other = replace(record, versions={**record.versions, "numpy": "1.0"})
    store.commit(f"runs/{name}", other, arrays=["embedding/3"])
    with pytest.warns(GPEWarning, match=r"numpy 1\.0"):
        again = gpe.embed(X, n_neighbors=6, power=3, store=tmp_path / "s.zarr", progress=False)
    assert (again.points[:] == first.points[:]).all()


def test_columns_that_were_being_written_do_not_hide_finished_ones(X, store):
    """A kill while columns 0-1 were written, then a run with wider panels: only committed ranges count."""
    expected = bytes_of(gpe.embed(X, store=store, **OPTIONS).points)
    (power,) = [path for path in store.glob("sketch/*/*") if path.name.isdigit()][:1]
    (columns,) = power.glob("0-*")
    (power / "0-1" / "columns").mkdir(parents=True)
    shutil.copy(columns / "columns" / "zarr.json", power / "0-1" / "columns" / "zarr.json")
    assert bytes_of(gpe.open(store).points) == expected
    assert bytes_of(gpe.embed(X, store=store, **OPTIONS).points) == expected


REFUSED = {
    "NaN": (lambda X: np.where(np.arange(X.size).reshape(X.shape) == X.size // 2, np.nan, X), {}, "must be finite"),
    "equal rows": (np.ones_like, {}, "at least 2 different rows"),
    "few different rows": (lambda X: X[:20].repeat(60, axis=0), {"n_neighbors": 40}, "number of different rows"),
    "too wide a range": (
        lambda X: np.where(np.arange(len(X))[:, None] < 3, X * 1e15, X * 1e-15),
        {},
        "loses the squares",
    ),
    "zero distances": (None, {"n_neighbors": None}, "distances"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_starting_over_keeps_the_old_run_if_the_new_input_is_refused(X, store, case):
    change, changes, message = REFUSED[case]
    gpe.embed(X, store=store, **OPTIONS)
    before = contents(store)
    given = {"X": None if change is None else change(np.array(X))}
    if change is None:
        n = len(X)
        given["neighbors"] = (np.arange(n)[:, None] + [[1, 2]]) % n, np.zeros((n, 2), np.float32)
    with pytest.raises(ValueError, match=message):
        gpe.embed(**given, store=store, resume=False, **(OPTIONS | changes))
    assert contents(store) == before


@pytest.mark.some(3)
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("stage", ["rows", "edges", "kernel", "heat"])
def test_an_interrupted_start_over_keeps_the_old_run_until_the_new_kernel_is_there(X, store, same, stage):
    """Also of the same input, whose graph is made again beside the old one; the same call then starts over."""
    expected = bytes_of(gpe.embed(X, store=store, **OPTIONS).points)
    given, seen = X if same else X[:400], []

    def stop(name, done, total):
        seen.append(name)
        if name.startswith(stage):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpe.embed(given, store=store, resume=False, progress=stop, **OPTIONS)
    if stage != "heat":
        assert bytes_of(gpe.open(store).points) == expected
        assert bytes_of(gpe.embed(X, store=store, **OPTIONS).points) == expected
    result = gpe.embed(given, store=store, resume=False, **OPTIONS)
    assert bytes_of(result.points) == bytes_of(gpe.embed(given, **OPTIONS).points)
    assert bytes_of(gpe.embed(given, store=store, **OPTIONS).points) == bytes_of(result.points)
    groups = [{name.split("/")[1] for name in contents(store) if name.startswith(one)} for one in ("graph/", "inputs/")]
    assert [len(names - {"zarr.json"}) for names in groups] == [1, 1]
    assert ZarrStore(store, read_only=True).verify() == []


def test_a_seed_that_is_drawn_anew_warns_with_a_store(X, store):
    from scalable_gpe.errors import GPEWarning

    with pytest.warns(GPEWarning, match="cannot be resumed"):
        gpe.embed(X, store=store, random_state=None, **OPTIONS)


def test_heat_kernels_that_share_a_store_are_not_mixed_up(X, tmp_path):
    """Two heat kernels of one name, as a search that depends on threads may give them, in a store that has neither."""
    from dataclasses import replace

    graph = gpe.neighbor_graph(X, 7)
    first, second = (gpe.heat_kernel(gpe.gaussian_kernel(graph, epsilon)) for epsilon in (0.1, 0.2))
    second = replace(second, name=first.name)
    for heat in (first, second):
        stored = gpe.gp_embedding(heat, 3, 4, store=tmp_path / "sketches.zarr")[:]
        fresh = gpe.gp_embedding(heat, 3, 4, store=tmp_path / f"{len(list(tmp_path.iterdir()))}.zarr")[:]
        np.testing.assert_array_equal(stored, fresh)


def test_stages_one_by_one_and_embed_share_their_results(X, store, monkeypatch):
    from scalable_gpe.graph.build import GraphStage
    from scalable_gpe.heat.kernel import KernelStage
    from scalable_gpe.heat.normalization import HeatStage

    graph = gpe.neighbor_graph(X, 7, store=store)
    heat = gpe.heat_kernel(gpe.gaussian_kernel(graph))
    points = gpe.gp_embedding(heat, 5, (3, 40))
    for stage in (GraphStage, KernelStage, HeatStage):
        monkeypatch.setattr(stage, "make", None)  # nothing is made again
    how = {"n_neighbors": 7, "n_components": 5, "power": (3, 40), "axes": "sketch", "progress": False}
    result = gpe.embed(X, store=store, **how)
    for power, values in points.items():
        np.testing.assert_array_equal(result.points[power][:], values[:])
    assert result.report["n_panels"] == 1
    assert len(list((store / "sketch").glob("*/zarr.json"))) == 1


def test_a_kernel_that_is_found_warns_as_when_it_was_made(X):
    from scalable_gpe.errors import TruncationWarning

    graph = gpe.neighbor_graph(X, 7)
    for _ in range(2):
        with pytest.warns(TruncationWarning):
            gpe.gaussian_kernel(graph, 50.0)


@pytest.mark.parametrize("name", ["r.npy", "r.CSV", "r.csv.gz", "page.html", "r.h5ad/", "memory://bucket/r.parquet"])
def test_a_store_is_not_called_like_a_file_of_another_format(name, tmp_path):
    """Somebody expects a file there: `scalable-gpe embed p.npy r.npy`."""
    path = name if "://" in name else f"{tmp_path}/{name}"
    X = gpe.datasets.torus(100)
    graph = gpe.neighbor_graph(X, 5)
    heat = gpe.heat_kernel(gpe.gaussian_kernel(graph))
    for work in (
        lambda: gpe.embed(X, store=path, progress=False),
        lambda: gpe.neighbor_graph(X, 5, store=path),
        lambda: gpe.gp_embedding(heat, store=path),
    ):
        with pytest.raises(ValueError, match=r"store is a folder, and must not end like a file.*\.zarr', and write"):
            work()
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_called_like_a_file_already_stays_open(tmp_path):
    X, how = gpe.datasets.torus(100), {"n_components": 8, "power": 2, "progress": False}
    gpe.embed(X, store=tmp_path / "run.zarr", **how)
    (tmp_path / "run.zarr").rename(tmp_path / "run.npy")
    gpe.embed(X, store=tmp_path / "run.npy", **how)
    assert gpe.open(tmp_path / "run.npy").points.shape == (100, 8)


def test_a_store_that_cannot_be_made_is_named():
    with pytest.raises(StoreError, match=r"store '/proc/none/run.zarr' cannot be made: .* Pass another path"):
        gpe.embed(gpe.datasets.torus(60), store="/proc/none/run.zarr", progress=False)
