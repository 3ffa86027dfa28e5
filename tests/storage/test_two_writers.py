"""Two processes whose locks do not exclude each other, as on some network file systems, never mix their results."""

import numpy as np
import pytest
import zarr

import scalable_gpe as gpe
from scalable_gpe import runs
from scalable_gpe.execution.context import open_store
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.runs import RunLog
from scalable_gpe.sketch import publish
from scalable_gpe.storage import backends

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
OPTIONS = {"n_neighbors": 6, "power": 3, "n_components": 6, "progress": False, "n_jobs": 1}
SEEDS = {"random_state": 0}, {"random_state": 1}
WIDTHS = {"n_components": 6}, {"n_components": 5}
MOMENTS = [(publish, "write_columns"), (RunLog, "finish")]


class NoLock:
    """A lock that excludes nobody."""

    def check(self):
        """Nothing to do."""

    def release(self):
        """Nothing to do."""


@pytest.fixture(params=["directory", "objects"])
def store(request, tmp_path, monkeypatch):
    monkeypatch.setattr(backends.LocalBackend, "lock", lambda self: NoLock())
    monkeypatch.setattr(backends.FsspecBackend, "lock", lambda self: NoLock())
    return tmp_path / "run.zarr" if request.param == "directory" else f"memory://{tmp_path.name}/run.zarr"


def embed(store=None, **more):
    with block_sizes(panel_columns=2):
        return np.asarray(gpe.embed(gpe.datasets.circle(200), store=store, **{**OPTIONS, **more}).points[:])


def at_once(monkeypatch, where, name, nested):
    """Run `nested` once, in the middle of another run: before its only, or its second, call of the function `name`."""
    real, calls = getattr(where, name), []

    def meanwhile(*arguments, **keywords):
        calls.append(name)
        if len(calls) == (2 if name == "write_columns" else 1):
            nested()
        return real(*arguments, **keywords)

    monkeypatch.setattr(where, name, meanwhile)


def check_two_writers(store, monkeypatch, both, where, name):
    at_once(monkeypatch, where, name, lambda: embed(store, **both[1]))
    embed(store, **both[0])
    monkeypatch.undo()
    for parameters in both:
        np.testing.assert_array_equal(embed(store, **parameters), embed(**parameters))


def test_two_writers_do_not_mix(store, monkeypatch):
    check_two_writers(store, monkeypatch, SEEDS, publish, "write_columns")


@pytest.mark.slow
@pytest.mark.parametrize("both", [SEEDS, WIDTHS], ids=["seeds", "widths"])
@pytest.mark.parametrize(("where", "name"), MOMENTS)
def test_two_writers_do_not_mix_at_any_moment(store, monkeypatch, both, where, name):
    check_two_writers(store, monkeypatch, both, where, name)


@pytest.mark.parametrize(("where", "name"), [(publish, "write_columns"), (RunLog, "finish")])
def test_an_array_that_another_run_is_writing_is_left_alone(store, monkeypatch, where, name):
    """A run that was killed while it wrote, or before its commit, resumes in its own array."""

    def killed(*arguments, **keywords):
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(where, name, killed)
        with pytest.raises(KeyboardInterrupt):
            embed(store)
    np.testing.assert_array_equal(embed(store, random_state=1), embed(random_state=1))
    np.testing.assert_array_equal(embed(store), embed())
    assert len(set(zarr.open_group(str(store), mode="r")["embedding"].array_keys())) == 2  # nothing is left over


def test_the_first_finished_run_has_the_short_name(store):
    first, second = embed(store), embed(store, random_state=1)
    arrays = [record.arrays[3] for record in runs.read_runs(open_store(store)).values()]
    assert sorted(arrays)[0] == "embedding/3" and sorted(arrays)[1].startswith("embedding/3-")
    root = zarr.open_group(str(store), mode="r")
    np.testing.assert_array_equal(root["embedding/3"][:], first)
    np.testing.assert_array_equal(root[sorted(arrays)[1]][:], second)
    assert set(root["embedding"].array_keys()) == {name.removeprefix("embedding/") for name in arrays}
