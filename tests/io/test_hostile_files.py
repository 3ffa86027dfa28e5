"""Files that were made to do harm: each is refused with a named error, in little memory, and no code of theirs runs.

All cases run in one process with a limit on its memory: a case that expands would end it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hostile_files

pytest.importorskip("pyarrow")
pytest.importorskip("h5py")
_MEMORY = 400 * 2**20  # bytes above what the process has once everything is imported


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What happened to each case, in a process of its own."""
    folder = tmp_path_factory.mktemp("hostile") / "inner"
    folder.mkdir()
    command = [sys.executable, hostile_files.__file__, str(folder), str(_MEMORY)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert [path.name for path in folder.parent.iterdir()] == ["inner"]  # nothing beside the files themselves
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", sorted(hostile_files.CASES))
def test_a_hostile_file_is_refused(outcomes, case):
    outcome = outcomes["cases"][case]
    assert outcome["error"] in hostile_files.NAMED, outcome
    assert len(outcome["text"]) > 20, outcome
    assert outcome["grown"] < 80 * 2**20, outcome


def test_no_code_runs_and_nothing_is_written(outcomes):
    assert outcomes["trapped"] is False
    assert outcomes["written"] == []


def test_sound_files_are_read_in_the_same_process(outcomes):
    """Else everything would be refused because of the limit."""
    assert outcomes["sound"] == {"npy": 64, "zarr": 64, "zarr2": 64, "shards": 64, "h5ad": 64, "parquet": 64, "csv": 64}


def test_every_kind_of_file_has_cases():
    kinds = {Path(case.split()[0]).name for case in hostile_files.CASES}
    assert kinds == {"npy", "zarr", "h5ad", "parquet", "csv", "npz"}
