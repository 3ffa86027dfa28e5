"""Stores that were tampered with: names and links that lead out of them do no harm."""

import hashlib
import json
import shutil

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import cli
from scalable_gpe.errors import StoreError
from scalable_gpe.storage.backends import check_key, open_backend

X = gpe.datasets.circle(200)
HOW = {"n_neighbors": 6, "n_components": 2, "power": 3, "progress": False}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    store = tmp_path_factory.mktemp("sound") / "run.zarr"
    gpe.embed(X, store=store, **HOW)
    return store


@pytest.fixture
def store(sound, tmp_path):
    copy = tmp_path / "inner" / "run.zarr"
    shutil.copytree(sound, copy)
    return copy


@pytest.fixture
def victim(tmp_path):
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "zarr.json").write_text("{}")
    (folder / "precious").write_text("data")
    return folder


def tamper(store, change):
    """Change the record of the run, with the checksum that belongs to it."""
    (file,) = (store / "runs").glob("*/zarr.json")
    content = json.loads(file.read_text())
    attributes = content["attributes"]
    change(attributes)
    known = {"facts": attributes["facts"], "metadata": attributes["metadata"]}
    attributes["checksum"] = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps(content))


OUTSIDE = "embedding/../../../victim"


def digests(attributes):
    attributes["metadata"][OUTSIDE] = "0" * 64


def arrays(attributes):
    attributes["facts"]["arrays"]["3"] = OUTSIDE


def keys(attributes):
    attributes["facts"]["keys"]["kernel"] = OUTSIDE


@pytest.mark.parametrize("change", [digests, arrays, keys])
def test_names_that_lead_out_do_no_harm(store, victim, change, capsys):
    tamper(store, change)
    for command in (["info", str(store), "--verify"], ["plot", str(store), str(store.parent / "p.png")]):
        cli.main(command)
        assert (victim / "precious").read_text() == "data" and (victim / "zarr.json").read_text() == "{}"
    with pytest.raises(StoreError, match="leads out of the store"):
        gpe.open(store)
    assert sorted(path.name for path in victim.iterdir()) == ["precious", "zarr.json"]


@pytest.mark.parametrize("group", ["kernel", "heat", "embedding"])
def test_links_that_lead_out_do_no_harm(store, victim, group):
    shutil.rmtree(store / group)
    (store / group).symlink_to(victim, target_is_directory=True)
    for resume in (True, False):
        with pytest.raises(StoreError, match="outside of the store"):
            gpe.embed(X, store=store, resume=resume, **HOW)
    assert (victim / "precious").read_text() == "data"
    assert sorted(path.name for path in victim.iterdir()) == ["precious", "zarr.json"]


@pytest.mark.parametrize("key", ["../a", "a/../../b", "/etc/passwd", "a/./b", "a\\b", "a\0b"])
def test_keys_that_lead_out_are_refused(key, tmp_path):
    with pytest.raises(StoreError, match="leads out of the store"):
        check_key(key)
    backend = open_backend(str(tmp_path))
    calls = (
        lambda: backend.read(key),
        lambda: backend.write(key, b"x"),
        lambda: backend.delete(key),
        lambda: backend.remove(key, "zarr.json"),
        lambda: backend.files(key),
        lambda: backend.folders(key),
        lambda: backend.flush(key),
        lambda: backend.exists(key),
        lambda: backend.read_into(key, bytearray(1)),
    )
    for call in calls:
        with pytest.raises(StoreError, match="leads out of the store"):
            call()


def test_a_store_that_is_itself_behind_a_link_works(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real, target_is_directory=True)
    points = gpe.embed(X, store=link / "run.zarr", **HOW).points[:]
    np.testing.assert_array_equal(gpe.open(real / "run.zarr").points[:], points)
