"""The benchmarks run: one table with every row, and the figures that hold at any size."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # .ci/full runs the benchmarks
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "run.py"
LEFT_OUT = {
    "graph stage / pynndescent",
    "all after the graph / pynndescent",
    "the whole embedding / pynndescent",
}


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
    assert len(names) == len(set(names)) == 16
    assert all(name in printed for name in names)
    assert {row["what"] for row in metadata["rows"] if row["value"] is None} == LEFT_OUT
    assert all(row["value"] > 0 for row in metadata["rows"] if row["value"] is not None)


def test_what_holds_at_any_size(done):
    rows = {row["what"]: row["value"] for row in done[1]["rows"]}
    assert rows["Sinkhorn to 1e-8"] <= 45
    assert rows["sketch sweeps, power 64"] <= 40
    assert rows["median error of distances, power 64"] <= 1e-4
    assert rows["digits, 10-NN label agreement: embedding, 16 columns, power 16"] > 0.9


@pytest.fixture
def benchmarks(monkeypatch):
    if not SCRIPT.exists():
        pytest.skip("benchmarks/ is not beside the tests")
    monkeypatch.syspath_prepend(str(SCRIPT.parent))


def test_figures_of_a_perfect_embedding_and_of_noise(benchmarks):
    from quality import figures
    from truth import Truth

    rng = np.random.default_rng(0)
    labels = np.append(np.repeat(np.arange(4), 25), -1)
    place = labels + 0.01 * rng.random(101)
    pairs = rng.integers(0, 100, (2, 500))
    truth = Truth(place[:, None], labels, True, pairs, np.abs(place[pairs[0]] - place[pairs[1]]))
    perfect = figures(truth, np.stack([place, 0 * place], axis=1))
    assert perfect == pytest.approx({"labels": 1, "NMI": 1, "few": 1, "rho": 1})
    noise = figures(truth, rng.standard_normal((101, 2)))
    assert max(noise["labels"], noise["NMI"], noise["few"], abs(noise["rho"])) < 0.4


def test_pseudotime_of_branches_follows_their_curves(benchmarks):
    from truth import branching

    X, branch, time = branching(600, noise=0.0)
    assert X.shape == (600, 30) and sorted(set(branch)) == [0, 1, 2, 3, 4]
    root = time.argmin()
    for one in range(5):
        rows = np.flatnonzero(branch == one)
        rows = rows[np.argsort(time[rows])]
        steps = np.linalg.norm(np.diff(X[rows], axis=0), axis=1)
        assert np.all(steps <= 6 * np.diff(time[rows]) + 1e-9)  # no jump along a branch
    assert np.linalg.norm(X[root]) < 0.2


def test_data_sets_are_split_by_turns(benchmarks):
    from truth import DATA, role

    roles = [role(name) for name in sorted(DATA, key=str.lower)]
    assert len(roles) >= 10
    assert roles[::2] == ["choose"] * len(roles[::2]) and roles[1::2] == ["report"] * len(roles[1::2])


def test_what_recall_is_worth(benchmarks, tmp_path):
    from recall import main

    out = tmp_path / "recall.json"
    text = main(["--quick", "--json", str(out)])
    known = json.loads(out.read_text(encoding="utf-8"))["losses"]
    exact, narrow, *poor, deleted = known
    assert exact["missing_weight"] == 0.0 and narrow["errors"]["all, near"] > 0.02
    assert [one["graph"] for one in poor] == ["search", "search"] and deleted["graph"] == "deleted"
    assert poor[0]["recall"] < poor[1]["recall"] < 1 and poor[0]["missing_weight"] > poor[1]["missing_weight"] > 0
    assert all(poor[0]["errors"][name] > poor[1]["errors"][name] > 0 for name in ("16, near", "all, near"))
    assert text.count("nested clusters") == 5 and "rank correlation" in text
    assert main(["--data", "--json", str(out)]) == text  # nothing new: the tables of the file


@pytest.mark.parametrize("parameter", ["first_power", "horizon", "sample"])
def test_the_study_of_many_rows_writes_its_table(benchmarks, tmp_path, capsys, monkeypatch, parameter):
    from many_rows import VARIED, main

    monkeypatch.setitem(VARIED, "sample", (100, 200, 300))
    path = tmp_path / "table.md"
    main(["--vary", parameter, "--data", "noise", "--sizes", "300", "--seeds", "2", "--markdown", str(path)])
    head, _, *lines = path.read_text(encoding="utf-8").splitlines()
    assert head.split(" | ")[3] == parameter.replace("_", " ")
    timed = head.endswith("| seconds |")
    assert timed == (parameter == "sample")
    assert tuple(int(line.split(" | ")[3]) for line in lines) == VARIED[parameter]
    assert all(line.startswith("| noise | reporting | 300 |") and line.count(" ± ") == 3 + timed for line in lines)
    assert capsys.readouterr().out.splitlines()[-1] == lines[-1]


def test_usefulness_writes_its_tables(tmp_path):
    script, out, text = SCRIPT.with_name("usefulness.py"), tmp_path / "figures.json", tmp_path / "tables.md"
    if not script.exists():
        pytest.skip("benchmarks/ is not beside the tests")
    command = [sys.executable, str(script), "--quick", "--data", "wine", "torus", "--json", str(out)]
    subprocess.run([*command, "--markdown", str(text)], capture_output=True, text=True, check=True)
    content = json.loads(out.read_text(encoding="utf-8"))
    assert [one["data"] for one in content["data"]] == ["wine", "torus"]
    means = {(one["data"], one["method"], one["figure"]): one["mean"] for one in content["figures"]}
    assert means["wine", 'power="all"', "labels"] > 0.9 and means["torus", 'power="all"', "rho"] > 0.8
    assert "All scales minus the best single power" in text.read_text(encoding="utf-8")
    assert means["torus", "power 16", "labels"] > means["torus", "power 4096", "labels"]


def test_peers_run_in_processes_of_their_own_and_are_not_repeated(benchmarks, tmp_path, capsys):
    from peers.run import main

    results = tmp_path / "peers.jsonl"
    wanted = ["input", "scalable_gpe, on disk", "SpectralEmbedding arpack", "datafold"]
    common = ["--sizes", "500", "--data", "branching", "--seeds", "1", "--results", str(results)]
    main([*common, "--interpreter", f"datafold={sys.executable}", "--methods", *wanted])
    assert "datafold: left out, datafold not installed; in an environment of its own" in capsys.readouterr().out
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [line["key"]["method"] for line in lines] == wanted[:3]
    for line in lines:
        assert line["status"] == "done" and line["seconds"]["call"] > 0 and 1e7 < line["peak"] < 2e9
        assert line["figures"][""]["labels"] > 0.8 and "diffusion all" in line["figures"][""]
    main([*common, "--methods", *wanted[:3]])
    main([*common[:-1], str(results), "--report", str(tmp_path)])
    assert len(results.read_text(encoding="utf-8").splitlines()) == 3
    text = (tmp_path / "peers.md").read_text(encoding="utf-8")
    assert "| SpectralEmbedding arpack | 0." in text and "| input | ." in text
    assert all((tmp_path / "figures" / name).stat().st_size > 5000 for name in ("peers-time.png", "peers-quality.png"))


def test_peers_are_stopped_by_their_limits(benchmarks):
    from peers.limits import run_limited
    from peers.records import Key, Record

    sleeping = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
    stopped = run_limited(sleeping, seconds=0.3, memory=1e9)
    assert stopped.status == "time" and stopped.seconds < 50
    growing = [sys.executable, "-c", "import time; x = bytearray(200_000_000); time.sleep(60)"]
    assert run_limited(growing, seconds=50, memory=1e8).status == "memory"
    failed = run_limited([sys.executable, "-c", "raise SystemExit('no such thing')"], seconds=30, memory=1e9)
    assert (failed.status, failed.reason) == ("failed", "no such thing")

    limits = {"time": 60.0, "memory": 1e9}
    record = Record(Key("branching", 1000, "slow", 0), "time", 1, 60.0, {}, limits)
    larger, higher = Key("branching", 3000, "slow", 0), {"time": 600.0, "memory": 1e9}
    assert record.rules_out(larger, limits) and not record.rules_out(larger, higher)
    assert not record.rules_out(Key("branching", 3000, "other", 0), limits)
    assert record.stopped_below(higher) and not record.stopped_below(limits)


def test_tables_of_peers_say_what_stopped_and_at_which_power(benchmarks):
    from peers.records import Key, Record
    from peers.report import markdown
    from peers.summary import Runs

    facts = {
        "machine": {"cpu": "one", "cores": 2, "memory": 8e9, "system": "Linux"},
        "limits": {"time": 60, "memory": 2e9},
    }

    def done(method, seed, **figures):
        seconds = {"import": 1.0, "first": 9.0, "second": 1.0, "call": 2.0 + seed}
        distances = list(range(500))
        key = Key("branching", 1000, method, seed)
        return Record(key, "done", 10**9, 9.0, **facts, seconds=seconds, figures=figures, distances=distances)

    ours = Runs(tuple(done("scalable_gpe", seed, **{"": {"labels": 0.9 + 0.02 * seed, "NMI": 0.5}}) for seed in (0, 1)))
    theirs = {"1": {"labels": 0.95, "NMI": 0.1}, "64": {"labels": 0.7, "NMI": 0.3}, "all": {"labels": 0.8, "NMI": 0.2}}
    maps = Runs((done("scanpy diffmap", 0, **theirs),))
    slow = Runs((Record(Key("branching", 1000, "PHATE", 0), "time", 5, 60.0, **facts),))
    known = [(one.records[0].key.method, one) for one in (ours, maps, slow)]
    table = {("branching", 1000, name): runs for name, runs in known} | {("branching", 5000, "scanpy diffmap"): maps}
    lines = markdown(table).splitlines()
    assert "| scalable_gpe | 2.0 (11.0) |  |" in lines and "| PHATE | > 60 s |  |" in lines
    assert "| scalable_gpe | .910 ± .010 | .500 ± .000 | 1.000 |" in lines
    assert "| scanpy diffmap, all scales | .800 | .200 |  |" in lines
    assert "| scanpy diffmap, best power | .950 | .300 |  |" in lines
    assert [line for line in lines if "Quality" in line] == [
        f"### Quality, branching, {n} rows" for n in ("1,000", "5,000")
    ]
    assert not any("More rows" in line for line in lines)
    table |= {("torus", n, "scalable_gpe"): ours for n in (1000, 4000)} | {("torus", 1000, "scanpy diffmap"): maps}
    lines = markdown(table).splitlines()
    assert "### More rows of other data" in lines
    assert [line for line in lines if "| torus |" in line] == [
        "| scalable_gpe | torus | 4,000 | 2.0 (11.0) | 1.00 |  |"
    ]


CLUSTER = """--points 2500 --features 12 --neighbors 8 --components 4 --power 8
    --sweep-points 2500 --model-points 2000 2500 --columns 8 --traffic-rows 2048
    --share-points 2500 --share-workers 1 2"""


def test_the_table_of_the_cluster(tmp_path):
    script, out = SCRIPT.with_name("cluster.py"), tmp_path / "table.json"
    if not script.exists():
        pytest.skip("benchmarks/ is not beside the tests")
    command = [sys.executable, str(script), *CLUSTER.split(), "--scratch", str(tmp_path), "--json", str(out)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = {row["what"]: row["value"] for row in json.loads(out.read_text(encoding="utf-8"))["rows"]}
    assert len(rows) == 12 and all(name in printed for name in rows)
    assert all(value > 0 for name, value in rows.items() if "read in a sweep" not in name)
    assert rows["bytes through the scheduler per sweep, 8 blocks: 16,384 points / 8,192"] < 1.5


def test_values_beyond_their_limits_fail(benchmarks):
    from measure import Row, check

    good = [Row("a", 1.0, "x", "<= 0.8", "", "<= 1.2"), Row("b", None, "x", "", "", "<= 1"), Row("c", 5.0, "x", "<= 1")]
    check(good)
    with pytest.raises(SystemExit, match=r"speed: 2 x, limit >= 3"):
        check([*good, Row("speed", 2.0, "x", ">= 6", "", ">= 3")])


def test_stages_with_one_thread_and_with_two(benchmarks):
    import argparse

    from cores import compare

    options = argparse.Namespace(points=2000, features=10, neighbors=8, components=8, power=4)
    rows = compare(options)
    assert len(rows) == 8 and all(row.value is not None for row in rows)


def test_a_search_and_its_picture(benchmarks, tmp_path):
    from searches import draw, measured, ratios

    X = np.random.default_rng(0).standard_normal((1500, 10)).astype(np.float32)
    options, known = argparse.Namespace(methods=["cells", "pynndescent"], runs=1), {}
    assert len(list(measured("smooth", X, known, options))) == len(known) == 12
    assert all(entry["seconds"][0] > 0 and entry["recall"] > 0.7 for entry in known.values())
    assert "ours / pynndescent" in next(ratios(known))
    draw(known, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_runs_under_memory_limits(benchmarks):
    """The smallest limit that the plan allows, and one with room for everything: peaks below them, the same bytes."""
    from limits import measure

    options = argparse.Namespace(
        rows=30_000, features=16, limits=["smallest", "2GB"], kill=None, against=[], scratch=None
    )
    peaks = {row.what: row for row in measure(options) if "peak memory" in row.what}
    assert len(peaks) == 2
    for what, row in peaks.items():
        limit = 2000.0 if "2GB" in what else float(row.aim.split()[1])
        assert 100 < row.value <= limit, what
