"""The command line as users see it: files in, store and report out, one line for each mistake."""

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import save_npz

import scalable_gpe as gpe
from scalable_gpe import cli
from scalable_gpe.errors import GPEWarning, VanishingWarning, warn

COMMAND = [sys.executable, "-m", "scalable_gpe.cli"]


def run(*arguments, **options):
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of points and the store that `embed` made from it."""
    path = tmp_path_factory.mktemp("cli")
    np.save(path / "points.npy", gpe.datasets.torus(600))
    done = run("embed", "points.npy", "run.zarr", "-k", 4, "--neighbors", 12, "--power", 4, 16, "--json", cwd=path)
    assert done.returncode == 0, done.stderr
    holes = gpe.datasets.torus(100)
    holes[17, 1] = np.nan
    np.save(path / "holes.npy", holes)
    gpe.embed(gpe.datasets.torus(300), n_components=1, power=1, store=path / "other.zarr", progress=False)
    (path / "embed.json").write_text(done.stdout, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_embed_is_the_function(folder):
    stored = gpe.open(folder / "run.zarr")
    same = gpe.embed(np.load("points.npy"), n_components=4, n_neighbors=12, power=[4, 16], progress=False)
    for power in (4, 16):
        np.testing.assert_array_equal(stored.points[power][:], same.points[power])
    printed = json.loads((folder / "embed.json").read_text(encoding="utf-8"))
    assert printed["report"]["n_rows"] == 600
    assert printed["parameters"]["power"] == [4, 16]


def test_every_option_of_embed_is_there():
    import inspect

    given = cli.embed.make_context("embed", ["X.npy", "S.zarr"]).params
    parameters = inspect.signature(gpe.embed).parameters
    # a client is an object of a running program; --quiet decides about progress
    assert {name.lower() for name in parameters} - {"client", "progress"} <= set(given)
    for name in set(parameters) - {"X", "store", "progress", "client"}:
        assert given[name] in (None, parameters[name].default), name


def test_info(folder, capsys):
    assert cli.main(["info", "run.zarr"]) == 0
    printed = capsys.readouterr().out
    assert "finished" in printed and "recall" in printed and "peak memory" in printed
    done = run("info", "run.zarr", "--json", cwd=folder)
    metadata = json.loads(done.stdout)
    (one,) = metadata["runs"]
    assert one["finished"] and all(one["stages"].values())
    assert one["parameters"]["n_neighbors"] == 12
    assert metadata["bytes"]["graph"] > 0


def test_info_of_an_unfinished_run(folder, tmp_path, monkeypatch, capsys):
    from scalable_gpe.heat.normalization import HeatStage

    monkeypatch.setattr(HeatStage, "make", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    store = str(tmp_path / "half.zarr")
    assert cli.main(["embed", "points.npy", store, "-q"]) == 130
    assert "the same command" in capsys.readouterr().err
    assert cli.main(["info", store, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["runs"]
    assert not one["finished"]
    assert one["stages"] == {"graph": True, "kernel": True, "heat": False, "sketch": False, "write": False}
    assert cli.main(["info", store]) == 0
    assert "still in stage heat, or stopped there" in capsys.readouterr().out
    assert cli.main(["plot", store, str(tmp_path / "p.png")]) == 1
    assert "an unfinished run. Run embed again" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert cli.main(["embed", "points.npy", store]) == 0
    assert f"resuming {store}: graph, kernel are there" in capsys.readouterr().out


def test_info_of_a_run_that_stopped_at_once(folder, tmp_path, monkeypatch, capsys):
    from scalable_gpe.graph.build import GraphStage

    monkeypatch.setattr(GraphStage, "make", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    store = str(tmp_path / "begun.zarr")
    assert cli.main(["embed", "points.npy", store, "-q"]) == 130
    capsys.readouterr()
    assert cli.main(["info", store]) == 0
    assert "still in its first stage, graph, or stopped there" in capsys.readouterr().out


def test_a_collapsed_embedding_says_so_wherever_its_report_is_shown(tmp_path, capsys):
    """A report holds the warnings with Python's argument names, and they are printed so."""
    store, words = str(tmp_path / "s.zarr"), "power=30000 leaves nothing of the data"
    with pytest.warns(VanishingWarning):
        gpe.embed(np.load("points.npy")[:100], power=30_000, n_components=3, store=store, progress=False)
    assert cli.main(["info", store]) == 0
    assert words in capsys.readouterr().out
    assert cli.main(["audit", store, "--n-probes", "20", "--n-exact", "4"]) == 0
    assert words in capsys.readouterr().out
    assert cli.main(["report", store, str(tmp_path / "page.html"), "--no-audit", "-q"]) == 0
    assert "<li>Power=30000 leaves nothing" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_estimate(capsys):
    assert cli.main(["estimate", "1e7", "16", "--neighbors", "16", "--memory-limit", "2GB"]) == 0
    assert "smallest --memory-limit" in capsys.readouterr().out
    assert cli.main(["estimate", "10_000_000", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gpe.estimate(10_000_000, 16)
    assert cli.main(["estimate", "points.npy", "--power", "4"]) == 0
    assert "on this machine, from a trial" in capsys.readouterr().out
    assert cli.main(["estimate", "1000"]) == 1
    assert "D must be given with a number of rows" in capsys.readouterr().err


def test_neighbors_instead_of_points(tmp_path, capsys):
    graph = gpe.neighbor_graph(np.load("points.npy"), 10)
    rows = np.repeat(np.arange(600), 10)
    from scipy.sparse import csr_matrix

    lists = csr_matrix((graph.distances.ravel(), (rows, graph.indices.ravel())), shape=(600, 600))
    save_npz(tmp_path / "lists.npz", lists)
    arguments = ["embed", "-", str(tmp_path / "s.zarr"), "--neighbors-file", str(tmp_path / "lists.npz")]
    np.save(tmp_path / "w.npy", np.linspace(1, 2, 600))
    assert cli.main([*arguments, "--power", "4", "--sample-weight", str(tmp_path / "w.npy")]) == 0
    assert "unknown: neighbors were given without X" in capsys.readouterr().out
    assert (gpe.open(tmp_path / "s.zarr").heat.sample_weight == np.linspace(1, 2, 600)).all()


def test_row_names_from_a_table_to_an_export(folder, tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame(np.load("points.npy"), columns=[f"x{i}" for i in range(4)])
    table.insert(0, "name", [f"row {i}" for i in range(600)])
    table.to_csv(tmp_path / "t.csv", index=False)
    sizes = ["--index", "name", "-k", "4", "--neighbors", "12", "--power", "4", "16"]
    assert cli.main(["embed", str(tmp_path / "t.csv"), str(tmp_path / "s.zarr"), *sizes]) == 0
    assert "points: 4 columns of" in capsys.readouterr().out
    assert cli.main(["export", str(tmp_path / "s.zarr"), str(tmp_path / "out.parquet"), "--power", "4"]) == 0
    assert "written: " in capsys.readouterr().out
    frame = pd.read_parquet(tmp_path / "out.parquet")
    assert frame.index[5] == "row 5"
    np.testing.assert_allclose(frame.to_numpy(), gpe.open("run.zarr").points[4][:], atol=1e-4)


def test_transform_is_the_method(folder, tmp_path, capsys, caplog, monkeypatch):
    """In several batches, at one power of several, with the old rows among the new ones."""
    X = np.load("points.npy")
    new = np.vstack([gpe.datasets.torus(700, random_state=5), X[:3]])
    np.save(tmp_path / "new.npy", new)
    monkeypatch.setattr("scalable_gpe.transform.new_points._BATCH_ROWS", 256)
    stored = gpe.open("run.zarr")
    for power, chosen in (([], 16), (["--power", "4"], 4)):
        out = tmp_path / f"placed-{chosen}.npy"
        assert cli.main(["transform", "run.zarr", str(tmp_path / "new.npy"), str(out), *power]) == 0
        placed = np.load(out)
        np.testing.assert_array_equal(placed, stored.transform(new, power=chosen))
        np.testing.assert_array_equal(placed[-3:], stored.points[chosen][:3])
    assert capsys.readouterr().out.count("written: ") == 2 and caplog.text.count("took power 16") == 1
    assert cli.main(["transform", "run.zarr", str(tmp_path / "new.npy"), str(out)]) == 1  # exists
    assert "--overwrite" in capsys.readouterr().err
    np.testing.assert_array_equal(np.load(out), placed)


def test_the_warnings_of_a_run_are_printed_by_the_run_alone(tmp_path, capsys):
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).standard_normal((300, 20)))
    noise, store, new = (str(tmp_path / name) for name in ("noise.npy", "noise.zarr", "new.npy"))
    made = ["embed", noise, store, "--power", "4096"]
    for words in (made, ["transform", store, noise, new], ["export", store, noise]):
        assert cli.main([*words, *(["--overwrite"] if words[0] == "export" else [])]) == 0
        shown = capsys.readouterr()
        assert shown.err.count("leaves nothing of the data") == (words is made)
        assert "leaves nothing of the data" not in shown.out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(gpe.open(store).report["warnings"]) == 1


def test_transform_keeps_names_and_says_what_is_far(folder, tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    new = gpe.datasets.torus(20, random_state=5)
    new[7] = 1e3
    table = pd.DataFrame(new.astype(np.float64), index=pd.Index([f"row {i}" for i in range(20)], name="name"))
    table.to_csv(tmp_path / "t.csv")
    given = ["transform", "run.zarr", str(tmp_path / "t.csv"), "--index", "name", "--power", "4"]
    for ending, read in ((".csv", functools.partial(pd.read_csv, index_col="name")), (".parquet", pd.read_parquet)):
        assert cli.main([*given, str(tmp_path / f"out{ending}")]) == 0
        assert "1 of 20 new rows are far from all training rows" in capsys.readouterr().err
        frame = read(tmp_path / f"out{ending}")
        assert list(frame.index) == list(table.index)
        with pytest.warns(gpe.errors.ConnectivityWarning):
            expected = gpe.open("run.zarr").transform(new, power=4)
        np.testing.assert_allclose(frame.to_numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["holes.npy", "out.npy"], "row 17"),
        (["wide.npy", "out.npy"], "INPUT must have the 4 features"),
        (["points.npy", "out.h5ad"], "the ending of the path must be"),
        (["points.npy", "nowhere/out.npy"], "there is no folder"),
        (["missing.npy", "out.npy"], "INPUT: there is no file 'missing.npy'"),
    ],
)
def test_transform_refuses_bad_input_and_leaves_no_file(folder, tmp_path, capsys, given, said):
    np.save("wide.npy", np.ones((5, 9)))
    assert cli.main(["transform", "run.zarr", given[0], str(tmp_path / given[1])]) == 1
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_row_names_that_come_after_the_run(folder, tmp_path, capsys):
    """The same rows with names: nothing is computed again, and the store has them from now on."""
    pd = pytest.importorskip("pandas")
    X = np.load("points.npy")[:100]
    np.save(tmp_path / "x.npy", X)
    arguments = [str(tmp_path / "s.zarr"), "-k", "4", "--neighbors", "12", "--power", "4"]
    assert cli.main(["embed", str(tmp_path / "x.npy"), *arguments]) == 0
    assert gpe.open(tmp_path / "s.zarr").names is None
    for form in ("row {}", "a longer name {}"):
        names = [form.format(i) for i in range(100)]
        pd.DataFrame(X.astype(np.float64), index=pd.Index(names, name="name")).to_csv(tmp_path / "t.csv")
        assert cli.main(["embed", str(tmp_path / "t.csv"), *arguments, "--index", "name"]) == 0
        assert list(gpe.open(tmp_path / "s.zarr").names) == names


def test_a_column_of_words_is_named_with_the_options_of_the_command(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text("kind,a,b\nx,1.5,2\ny,3,4.25\n")
    assert cli.main(["embed", str(tmp_path / "t.csv"), str(tmp_path / "s.zarr")]) == 1
    printed = capsys.readouterr().err
    assert "column 'kind'" in printed and "--index" in printed and "--drop" in printed


def test_audit(capsys):
    assert cli.main(["audit", "run.zarr", "--probes", "40", "--exact", "5"]) == 0
    printed = capsys.readouterr()
    assert "median error" in printed.out and "power 16" in printed.out
    assert "comparing 5 rows with exact diffusion distances" in printed.err
    assert cli.main(["audit", "run.zarr", "--probes", "40", "--exact", "5", "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["powers"]["4"]["n_pairs"] == 10
    assert not printed.err


PICTURES = [
    [],
    ["--what", "scatter", "--components", "0", "2", "--power", "4", "--color", "points.npy", "--column", "0"],
    ["--components", "0", "1", "--title", "mine"],
    ["--power", "4", "--theme", "dark", "--max-labels", "3"],
    ["--what", "epsilon"],
    ["--what", "spectrum", "--title", "ranks"],
    ["--what", "audit", "--probes", "30", "--exact", "4"],
]


@pytest.mark.some(4)
@pytest.mark.parametrize("arguments", PICTURES, ids=lambda one: " ".join(one[:4]))
def test_plot(arguments, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert cli.main(["plot", "run.zarr", str(tmp_path / "p.png"), "--dpi", "50", "--json", *arguments]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": str(tmp_path / "p.png")}
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_report(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", "run.zarr", str(page), "--no-audit", "--color", "points.npy", "--column", "1"]) == 0
    assert capsys.readouterr().out == f"written: {page}\n"
    assert "600 rows in 4 dimensions" in page.read_text(encoding="utf-8")
    assert cli.main(["report", "run.zarr", str(page), "--probes", "30", "--exact", "4", "-q"]) == 0
    assert "All figures of the audit" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["embed", "estimate", "info", "audit", "plot", "report", "export", "demo"])
def test_each_command_has_help_with_an_example(command, capsys):
    assert cli.main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"scalable-gpe {command}" in printed.partition("example")[2]
    assert {"--quiet", "--json"} <= set(printed.replace(",", " ").split())


MISTAKES = [
    (["embed", "nothing.npy", "s.zarr"], "there is no file 'nothing.npy'"),
    (["embed", "points.npy", "s.zarr", "--metric", "manhattan"], "error: --metric must be"),
    (["embed", "points.npy", "s.zarr", "--sample-weight", "w.csv"], "error: --sample-weight must be a .npy file"),
    (["embed", "points.npy", "s.zarr", "--epsilon", "-1"], "error: --epsilon must be"),
    (["embed", "points.npy", "s.zarr", "--neighbors", "600"], "--n-neighbors must be between 1 and 599"),
    (["embed", "points.npy", "s.zarr", "--memory-limit", "1MB"], "--memory-limit must be at least"),
    (["info", "nothing.zarr"], "does not exist"),
    (["estimate", "1", "2"], "error: N must be at least 2"),
    (["audit", "nothing.zarr"], "does not exist"),
    (["plot", "run.zarr", "p.xyz"], "not supported"),
    (["plot", "run.zarr", "p.png", "--what", "scatter", "--power", "5"], "power must be one of [4, 16]"),
    (["export", "run.zarr", "out.txt"], "ending of the path must be one of"),
    (["report", "run.zarr", "cells.h5ad"], "a page ends in .html"),
    (["plot", "run.zarr", "nowhere/p.png"], "there is no folder 'nowhere'"),
    (["export", "run.zarr", "points.npy"], "or replace it with --overwrite."),
    (["export", "run.zarr", "out.npy", "--run", "none"], "--run must name one of"),
    (["plot", "run.zarr", "p.png", "--column", "kind"], "--column names a column of the file of --color"),
    (["plot", "run.zarr", "p.png", "--what", "audit", "--color", "points.npy"], "--color is for --what powers"),
    (["plot", "run.zarr", "p.png", "--components", "1", "1"], "--components must be two different columns"),
    (["plot", "run.zarr", "p.png", "--color", "points.npy"], "--column must be the number of a column"),
    (
        ["embed", "holes.npy", "s.zarr"],
        "INPUT must be finite and below 1e120; NaN, infinity or more in row 17, column 1. Drop these rows (--missing",
    ),
    (["embed", "points.npy", "other.zarr"], "n_rows: stored 300, now 600). Pass another store, or --no-resume to"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=[" ".join(case[0][-2:]) for case in MISTAKES])
def test_mistakes_take_one_line(arguments, words, capsys, folder):
    if arguments[0] == "plot":
        pytest.importorskip("matplotlib")
    assert cli.main(arguments) == 1
    printed = capsys.readouterr()
    assert words in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert printed.out == ""
    assert not (folder / "s.zarr").exists()


def test_an_interrupted_run_is_not_told_to_start_over(monkeypatch, capsys, folder):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("scalable_gpe.embed", interrupted)
    assert cli.main(["embed", "points.npy", "run.zarr", "--no-resume", "--power", "4"]) == 130
    assert "Finished work stays in run.zarr" in capsys.readouterr().err
    assert cli.main(["embed", "points.npy", "s.zarr"]) == 130
    assert "interrupted. Nothing was left behind." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("power=8 leaves nothing. Choose a smaller power.", "--power 8 leaves nothing. Choose a smaller power."),
        ("X must be 2-D", "INPUT must be 2-D"),
        ("X_new must be 2-D", "INPUT must be 2-D"),
        ("Raise n_neighbors, or choose method='brute'.", "Raise --n-neighbors, or choose --method brute."),
        ("Pass key=, or resume=False.", "Pass --key, or --no-resume."),
        ("neighbors must be square", "--neighbors-file must be square"),
        ("n_radius is no option, nor is resume=True", "n_radius is no option, nor is resume=True"),
        ("store '/data/power=4/n_jobs.zarr' is busy", "store '/data/power=4/n_jobs.zarr' is busy"),
        ("Pass read_points(index='name') or read_points(drop=).", "Pass --index name or --drop."),
    ],
)
def test_arguments_are_options_here(text, expected):
    assert cli.embed.in_options(text) == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["embed", "line.npy", "s.zarr"], "INPUT must be 2-D"),
        (["embed", "words.npy", "s.zarr"], "INPUT must be real and numeric"),
        (["embed", "long.npy", "s.zarr"], "INPUT must hold whole numbers below"),
        (["embed", "holes.npy", "s.zarr"], "(--missing drop drops those with NaN)"),
        (
            ["transform", "run.zarr", "holes.npy", "new.npy"],
            "--missing drop leaves out those with NaN.",
        ),
        (["embed", "-", "s.zarr"], "embed needs X or neighbors; got neither."),
        (["embed", "points.npy", "s.zarr", "--n-jobs", "0"], "--n-jobs must not be 0; -1 stands for all cores."),
        (["embed", "points.npy", "s.zarr", "--scale", "max"], "--scale must be one of 'standard', 'robust'"),
        (["embed", "points.npy", "s.zarr", "--scale", "robust", "--metric", "cosine"], "is for --metric euclidean"),
    ],
)
def test_errors_speak_of_options(words, said, capsys):
    np.save("line.npy", np.ones(5))
    np.save("words.npy", np.array([["a", "b"]] * 5))
    np.save("long.npy", np.full((5, 2), 2**60))
    assert cli.main(words) == 1
    printed = capsys.readouterr().err
    assert said in printed
    assert not re.search(r"\w=|np\.|gpe\.|\bNone\b|\bTrue\b", printed), printed


def test_live_warnings_name_options(monkeypatch, capsys):
    def warning(*_, **__):
        warn("recall must be higher. Raise n_neighbors.", GPEWarning)
        raise KeyboardInterrupt

    monkeypatch.setattr("scalable_gpe.embed", warning)
    assert cli.main(["embed", "points.npy", "nowhere.zarr"]) == 130
    assert "scalable-gpe: warning: --recall must be higher. Raise --n-neighbors.\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "powers"),
    [
        (["--power", "4", "16", "-k", "2"], [4, 16]),
        (["--power", "4", "--power", "all"], [4, "all"]),
        (["--power=1e3"], 1000),
        ([], None),
    ],
)
def test_one_or_several_values(words, powers):
    given = cli.embed.make_context("embed", ["-", "s.zarr", "--columns", "a", "b", *words]).params
    assert (given["power"], given["columns"], given["drop"]) == (powers, ["a", "b"], None)


def test_an_unknown_option_is_explained_by_its_command(capsys):
    assert cli.main(["embed", "points.npy", "s.zarr", "--n-neighbours", "4"]) == 2
    printed = capsys.readouterr().err
    assert "Usage: scalable-gpe embed" in printed and "did you mean --n-neighbors?" in printed


def test_a_mistake_in_a_real_process(folder):
    done = run("embed", "nothing.npy", "s.zarr", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("scalable-gpe: error: ")
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing command"),
        (["embed"], "Missing argument 'INPUT'"),
        (["embed", "a", "b", "--power", "x"], "Invalid value for '--power': 'x' is not a positive whole number"),
        (["embed", "a", "b", "--power", "4", "auto"], "'auto' is not a positive whole number or all"),
        (["embed", "a", "b", "-k", "0"], "'0' is not a positive whole number"),
        (["estimate", "5", "1e999"], "'1e999' is not a positive whole number"),
        (["fly"], "No such command 'fly'"),
        (["plot", "a", "b", "--what", "c"], "'c' is not one of 'powers', "),
    ],
)
def test_wrong_usage(arguments, words, capsys):
    assert cli.main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("Usage: scalable-gpe ") and "\nscalable-gpe: error: " in printed and words in printed


def test_help_loads_no_large_library_and_has_examples():
    code = (
        "import sys; from scalable_gpe import cli\n"
        "cli.main(['--help'])\n"
        "print([m for m in ('numpy', 'numba', 'zarr', 'scipy', 'dask', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "examples:" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_run_used_last_is_the_default(tmp_path, capsys):
    store, out = str(tmp_path / "s.zarr"), str(tmp_path / "out.npy")
    for power in ("4", "8", "4"):
        assert cli.main(["embed", "points.npy", store, "--power", power, "-k", "2", "-q"]) == 0
    assert cli.main(["export", store, out]) == 0
    assert "holds several runs; this is the latest" in capsys.readouterr().err
    expected = {power: gpe.embed(np.load("points.npy"), power=power, n_components=2).points for power in (4, 8)}
    np.testing.assert_array_equal(np.load(out), expected[4])
    assert cli.main(["info", store, "--json"]) == 0
    other = json.loads(capsys.readouterr().out)["runs"][0]
    assert other["parameters"]["power"] == 8
    assert cli.main(["info", store]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run ")]
    assert [", the latest" in title for title in titles] == [False, True]
    assert cli.main(["export", store, out, "--overwrite", "--run", other["name"][:5]]) == 0
    assert "several runs" not in capsys.readouterr().err
    np.testing.assert_array_equal(np.load(out), expected[8])


def test_a_run_that_is_complete_says_so(tmp_path, capsys):
    command = ["embed", "points.npy", str(tmp_path / "s.zarr"), "--power", "4", "-k", "2"]
    assert cli.main(command) == 0
    assert "nothing was computed" not in capsys.readouterr().out
    assert cli.main(command) == 0
    assert "nothing was computed" in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_failure(folder):
    process = subprocess.Popen(
        [*COMMAND, "info", "run.zarr"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
    )
    process.stdout.close()
    assert process.wait(300) == 0
    assert process.stderr.read() == b""


def test_quiet(capsys, tmp_path):
    assert cli.main(["embed", "points.npy", str(tmp_path / "s.zarr"), "--power", "2", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_demo(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    arguments = ["demo", "--points", "3000", "--power", "8", "32", "--components", "4"]
    first = run(*arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "peak memory" in first.stdout and "lost mass" not in first.stdout
    assert (tmp_path / "gpe-demo.png").stat().st_size > 10_000
    stored = gpe.open(tmp_path / "gpe-demo" / "embedding-3000.zarr")
    assert stored.points[32].shape == (3000, 4)
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 0
    assert "points exist" in capsys.readouterr().out


def test_demo_without_matplotlib(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert cli.main(["demo", "--points", "500"]) == 0
    printed = capsys.readouterr()
    assert "peak memory" in printed.out
    assert 'pip install "scalable-gpe[plot]"' in printed.err
    assert not (tmp_path / "gpe-demo.png").exists()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("scalable-gpe est", "plain,estimate"), ("scalable-gpe embed a b --mem", "plain,--memory-limit")],
)
def test_a_shell_completes_commands_and_options(typed, offered):
    asked = {"_SCALABLE_GPE_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run(COMMAND, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [offered]


@pytest.mark.slow
def test_after_warm_up_an_embedding_compiles_nothing(tmp_path):
    cache, points = tmp_path / "cache", tmp_path / "points.npy"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    call = functools.partial(subprocess.run, env=environment, check=True, capture_output=True, text=True)
    made = json.loads(call([*COMMAND, "warm-up", "--json"]).stdout)
    assert Path(made["cache"]).parent == cache
    before = sorted(path.name for path in cache.rglob("*.nbc"))
    assert before
    np.save(points, gpe.datasets.patches(4000, 12, random_state=1))
    for number, options in enumerate([[], ["--power", "64"], ["--method", "cells", "--epsilon", "local"]]):
        call([*COMMAND, "embed", str(points), str(tmp_path / f"{number}.zarr"), *options])
    assert sorted(path.name for path in cache.rglob("*.nbc")) == before


def test_interrupt(tmp_path):
    """Ctrl-C in a real process: 130, and one line."""
    command = [*COMMAND, "demo", "--points", "20000", "--power", "4096", "-k", "64", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # tests that run in the background of a shell inherit that it is ignored
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    )
    heat = tmp_path / "out" / "embedding-20000.zarr" / "heat"
    deadline = time.monotonic() + 180
    while not heat.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    errors = ""
    for _ in range(5):  # an interruption that meets a callback of the compiler is lost: then users press it again
        os.kill(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, errors = process.communicate(timeout=30)
            break
    assert process.returncode == 130
    assert "the same command" in errors and "Traceback" not in errors
