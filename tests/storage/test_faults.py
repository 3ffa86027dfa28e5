"""Damage of every kind in every array: it is named or repaired, and never gives a wrong number."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.errors import StoreError
from scalable_gpe.execution.block_sizes import block_sizes
from scalable_gpe.storage.zarr_store import ZarrStore

KINDS = ("flip", "truncate", "delete", "empty", "metadata")


def points():
    X = gpe.datasets.torus(900, random_state=2)
    X[30:40] = X[3]
    return X


def embed(store, **changes):
    with block_sizes(block_rows=256, panel_columns=3):
        return gpe.embed(points(), n_neighbors=8, n_components=5, power=[3, 20], store=store, progress=False, **changes)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    store = tmp_path_factory.mktemp("sound") / "run.zarr"
    result = embed(store)
    return store, {power: np.array(values[:]) for power, values in result.points.items()}


def array_names(store):
    return [
        file.parent.relative_to(store).as_posix()
        for file in sorted(Path(store).rglob("zarr.json"))
        if json.loads(file.read_bytes())["node_type"] == "array"
    ]


def damage(store, array, kind, seed):
    """Damage one chunk (or the metadata) of an array."""
    rng = np.random.default_rng(seed)
    if kind == "metadata":
        file = store / array / "zarr.json"
        content = json.loads(file.read_bytes())
        content["data_type"] = {"float32": "int32", "int32": "float32"}.get(content["data_type"], "float32")
        file.write_text(json.dumps(content))
        return file
    chunks = sorted(file for file in (store / array / "c").rglob("*") if file.is_file())
    file = chunks[rng.integers(len(chunks))]
    data = bytearray(file.read_bytes())
    if kind == "flip":
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        file.write_bytes(data)
    elif kind == "truncate":
        file.write_bytes(data[: rng.integers(1, len(data))])
    elif kind == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
    return file


def check_fault(sound, tmp_path, array, kind, seed):
    store, truth = sound
    copy = tmp_path / f"{seed}.zarr"
    shutil.copytree(store, copy)
    damage(copy, array, kind, seed)
    found = ZarrStore(copy, read_only=True).verify()
    assert array in [name for name, _ in found]
    if seed % 2:  # half of them find the damage during the run, half with verify
        for name, what in found:
            ZarrStore(copy).repair(name, what)
    result = embed(copy)
    for power, values in truth.items():
        np.testing.assert_array_equal(result.points[power][:], values)
    if seed % 2:
        assert ZarrStore(copy, read_only=True).verify() == []
    shutil.rmtree(copy)


def test_a_sound_store_verifies(sound):
    assert ZarrStore(sound[0], read_only=True).verify() == []


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_named_and_repaired(sound, tmp_path, kind):
    names = array_names(sound[0])
    for number, array in enumerate(names[KINDS.index(kind) :: len(KINDS)]):
        check_fault(sound, tmp_path, array, kind, number)


@pytest.mark.slow
def test_two_hundred_faults(sound, tmp_path):
    faults = [(array, kind) for array in array_names(sound[0]) for kind in KINDS]
    for number in range(max(200, len(faults))):
        check_fault(sound, tmp_path, *faults[number % len(faults)], number)


def test_a_changed_commit_is_noticed(sound, tmp_path):
    store, truth = sound
    copy = tmp_path / "run.zarr"
    shutil.copytree(store, copy)
    kernel = next(entry for entry in (copy / "kernel").iterdir() if entry.is_dir())
    commit = json.loads((kernel / "zarr.json").read_bytes())
    commit["attributes"]["facts"]["epsilon"] *= 1.01
    (kernel / "zarr.json").write_text(json.dumps(commit))
    assert any("kernel" in name for name, _ in ZarrStore(copy, read_only=True).verify())
    np.testing.assert_array_equal(embed(copy).points[20][:], truth[20])


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("after", [5, 30, 55])
def test_a_full_or_broken_disk_ends_clearly_and_resumes(sound, tmp_path, monkeypatch, fault, after):
    from zarr.storage import LocalStore

    store, write, count = tmp_path / "run.zarr", LocalStore.set, [0]

    async def failing(self, key, value):
        count[0] += 1
        if count[0] > after:
            raise OSError(fault, "injected")
        await write(self, key, value)

    monkeypatch.setattr(LocalStore, "set", failing)
    with pytest.raises(StoreError, match="run the same call again"):
        embed(store)
    monkeypatch.undo()
    result = embed(store)
    for power, values in sound[1].items():
        np.testing.assert_array_equal(result.points[power][:], values)


def test_info_verify_names_the_chunk_and_the_next_run_repairs_it(sound, tmp_path, capsys):
    from scalable_gpe.cli import main

    copy = tmp_path / "run.zarr"
    shutil.copytree(sound[0], copy)
    assert main(["info", "--verify", str(copy)]) == 0
    array = next(name for name in array_names(copy) if name.endswith("weights"))
    file = damage(copy, array, "flip", 3)
    capsys.readouterr()
    assert main(["info", "--verify", str(copy)]) == 1
    assert f"{array}: chunk {file.relative_to(copy / array).as_posix()} is damaged" in capsys.readouterr().out
    np.testing.assert_array_equal(embed(copy).points[20][:], sound[1][20])
    assert main(["info", "--verify", str(copy)]) == 0
