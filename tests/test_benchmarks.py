"""The benchmarks run: one table with every row, and the figures that hold at any size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "run.py"
LEFT_OUT = {"graph stage / pynndescent", "all after the graph / pynndescent"}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    if not SCRIPT.exists():
        pytest.skip("benchmarks/ is not beside the tests")
    out = tmp_path_factory.mktemp("benchmarks") / "table.json"
    command = [sys.executable, str(SCRIPT), "--points", "2500", "--features", "12", "--high-power", "64"]
    command += ["--memory-limit", "1GB", "--no-pynndescent", "--json", str(out)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    return finished.stdout, json.loads(out.read_text(encoding="utf-8"))


def test_the_table_has_its_rows(done):
    printed, metadata = done
    names = [row["what"] for row in metadata["rows"]]
    assert len(names) == len(set(names)) == 13
    assert all(name in printed for name in names)
    assert {row["what"] for row in metadata["rows"] if row["value"] is None} == LEFT_OUT
    assert all(row["value"] > 0 for row in metadata["rows"] if row["value"] is not None)


def test_what_holds_at_any_size(done):
    rows = {row["what"]: row["value"] for row in done[1]["rows"]}
    assert rows["Sinkhorn to 1e-8"] <= 45
    assert rows["sketch sweeps, power 64"] <= 40
    assert rows["median error of distances, power 64"] <= 1e-4
    assert rows["digits, 10-NN label agreement: embedding, 16 columns, power 16"] > 0.9


CLUSTER = """--points 2500 --features 12 --neighbors 8 --components 4 --power 8
    --sweep-points 2500 --model-points 2000 2500 --columns 8 --traffic-rows 2048"""


@pytest.mark.slow
def test_the_table_of_the_cluster(tmp_path):
    script, out = SCRIPT.with_name("cluster.py"), tmp_path / "table.json"
    if not script.exists():
        pytest.skip("benchmarks/ is not beside the tests")
    command = [sys.executable, str(script), *CLUSTER.split(), "--scratch", str(tmp_path), "--json", str(out)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = {row["what"]: row["value"] for row in json.loads(out.read_text(encoding="utf-8"))["rows"]}
    assert len(rows) == 6 and all(name in printed for name in rows)
    assert all(value > 0 for value in rows.values())
    assert rows["bytes through the scheduler per sweep, 8 blocks: 16,384 points / 8,192"] < 1.5
