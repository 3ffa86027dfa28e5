"""The columns of a sketch in a store."""

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.sketch import columns
from scalable_gpe.storage.zarr_store import ZarrStore


class Killed(BaseException):
    pass


def test_a_run_killed_after_its_last_column_leaves_no_saved_state(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "_SAVE_SECONDS", 0.0)
    X, path, remove = gpe.datasets.torus(400), tmp_path / "run.zarr", ZarrStore.remove

    def killed(self, name):
        if name.count("/") == 3 and "/saved/" in name:  # the state of a finished panel
            raise Killed
        remove(self, name)

    monkeypatch.setattr(ZarrStore, "remove", killed)
    with pytest.raises(Killed):
        gpe.embed(X, power=64, store=path, progress=False)
    monkeypatch.setattr(ZarrStore, "remove", remove)
    assert list(path.glob("sketch/*/saved/*"))
    resumed = gpe.embed(X, power=64, store=path, progress=False)
    assert not list(path.glob("sketch/*/saved"))
    np.testing.assert_array_equal(resumed.points[:], gpe.embed(X, power=64, progress=False).points)
