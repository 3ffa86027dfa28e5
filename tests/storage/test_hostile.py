"""Stores that were tampered with: names and links that lead out of them do no harm."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import zarr

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
    known = {"record": attributes["record"], "metadata": attributes["metadata"]}
    attributes["checksum"] = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps(content))


OUTSIDE = "embedding/../../../victim"


def digests(attributes):
    attributes["metadata"][OUTSIDE] = "0" * 64


def arrays(attributes):
    attributes["record"]["arrays"]["3"] = OUTSIDE


def keys(attributes):
    attributes["record"]["keys"]["kernel"] = OUTSIDE


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
        lambda: backend.remove(key),
        lambda: backend.files(key),
        lambda: backend.folders(key),
        lambda: backend.flush(key),
        lambda: backend.exists(key),
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


# --- records, metadata and chunks -----------------------------------------------------------------

COMMANDS = (["export", "p.npy"], ["info", "--verify"])


def refused(store, capsys):
    """Open, read and embed again: each gives a result or a named error, and none of them harms the folder around."""
    around = sorted(path.name for path in store.parent.iterdir())
    with pytest.raises(StoreError) as raised:
        np.asarray(gpe.open(store).points[:])
    assert len(str(raised.value)) > 20
    check_commands(store, capsys)
    assert sorted(path.name for path in store.parent.iterdir()) == around


def check_commands(store, capsys):
    """The commands give a result or a named error."""
    for first, *rest in COMMANDS:
        targets = [str(store.parent / one) if one.startswith("p.") else one for one in rest]
        assert cli.main([first, str(store), *targets]) in (0, 1)
    assert "--debug shows where" not in capsys.readouterr().err  # printed with errors that are not ours
    (store.parent / "p.npy").unlink(missing_ok=True)


FIELDS = {
    "NaN as epsilon": ("report", "epsilon", float("nan")),
    "words as epsilon": ("report", "epsilon", "<script>"),
    "a list as epsilon": ("report", "epsilon", [1]),
    "NaN as a count": ("report", "n_rows", float("nan")),
    "words as a count": ("report", "n_rows", "many"),
    "nothing as a count": ("report", "n_rows", None),
    "truth as a count": ("report", "n_rows", True),
    "a fraction as a count": ("report", "n_rows", 0.5),
    "NaN as seconds": ("report", "stage_seconds", {"graph": float("nan")}),
    "a list as versions": ("report", "versions", ["x"]),
    "a number as a name": ("arrays", "3", 3),
    "words as a number of columns": ("parameters", "n_components", "2"),
    "a power that is an object": ("parameters", "power", {"a": 1}),
}


@pytest.mark.parametrize("case", FIELDS)
def test_fields_of_another_kind_are_refused(store, case, capsys):
    part, name, value = FIELDS[case]
    tamper(store, lambda attributes: attributes["record"][part].update({name: value}))
    refused(store, capsys)


@pytest.mark.parametrize("part", ["report", "parameters", "keys", "arrays"])
@pytest.mark.parametrize("value", [None, [], {}])
def test_parts_of_another_kind_are_refused(store, part, value, capsys):
    if (part, value) in (("report", None), ("arrays", {})):
        return  # what an unfinished run has
    tamper(store, lambda attributes: attributes["record"].update({part: value}))
    refused(store, capsys)


@pytest.mark.parametrize("text", ["", '{"attributes": []}', '{"a":' * 100_000])
@pytest.mark.parametrize("mark", ["", "runs/*", "graph/*", "kernel/*", "heat/*"])
def test_marks_that_are_not_marks(store, mark, text, capsys):
    (file,) = store.glob(f"{mark}/zarr.json") if mark else [store / "zarr.json"]
    file.write_text(text)
    check_commands(store, capsys)


def test_texts_of_a_store_do_not_steer_the_terminal(store, capsys):
    steer = "\x1b]0;owned\x07\x1b[2J\u202e"
    tamper(store, lambda attributes: attributes["record"]["report"].update(warnings=[steer], method=steer))
    for command in (["info", str(store)], ["plot", str(store), str(store.parent / "p.png")]):
        assert cli.main(command) == 0
    printed = "".join(capsys.readouterr())
    assert "owned" in printed and not set(printed) & set("\x1b\x07\u202e")


CONTENTS = {
    "columns of K": ("graph/*/edges/indices", 2**31 - 5),
    "columns of K below 0": ("graph/*/edges/indices", -5),
    "lengths of rows": ("graph/*/edges/degree", 2**30),
    "lengths of rows below 0": ("graph/*/edges/degree", -1),
    "rows of the user": ("graph/*/user_row", 2**40),
    "neighbour lists": ("graph/*/indices", 2**31 - 5),
    "scales": ("heat/*/scale", np.nan),
}


def forget_chunks(store):
    """Remove the list of chunks from all commits, as one who changes a store would."""
    for file in store.rglob("zarr.json"):
        content = json.loads(file.read_bytes())
        if content.get("attributes", {}).pop("chunks", None) is not None:
            file.write_text(json.dumps(content))


@pytest.mark.parametrize("case", CONTENTS)
def test_numbers_that_compiled_loops_would_follow(sound, store, case):
    """The checksums of these chunks are right; without a check, the process would read memory that is not its own."""
    pytest.importorskip("anndata")
    pattern, value = CONTENTS[case]
    (folder,) = store.glob(pattern)
    array = zarr.open_array(str(folder), mode="r+")
    values = array[:]
    values[..., 1:] = value  # the first entry of a block says that it is there
    array[:] = values
    forget_chunks(store)
    with pytest.raises(StoreError, match="its numbers cannot be right"):
        gpe.export(gpe.open(store), store.parent / "p.h5ad")
    points = gpe.embed(X, store=store, **(HOW | {"power": 4})).points[:]
    np.testing.assert_array_equal(points, gpe.embed(X, **(HOW | {"power": 4})).points)
