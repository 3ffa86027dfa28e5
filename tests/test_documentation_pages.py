"""The Python on the documentation's pages runs, from the top of a page to its end."""

import importlib.util
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"


WITH_PICTURES = ["choosing-parameters.md", "pictures.md", "quickstart.md"]
WITH_OUTPUT = ["audit.md"]  # the output on the page is that of its code
PAGES = [
    *WITH_PICTURES,
    "audit.md",
    "index.md",
    "interchange.md",
    "labels-and-fates.md",
    "new-points.md",
    "questions.md",
]
RECIPES = ["cluster.md", "larger-than-memory.md", "scanpy.md", "tables.md"]  # test_recipes.py runs them


QUICK = {"quickstart.md", "index.md", "new-points.md"}  # the others are run by .ci/full


def python_of(page: Path) -> list[str]:
    """The code that a page shows; blocks that need a bucket or machines say so and are left out."""
    # blocks that are marked py need scanpy, which .ci/full installs
    kind = "py(?:thon)?" if importlib.util.find_spec("scanpy") else "python"
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(rf"^(<!-- not run.*-->\n)?```{kind}\n(.*?)```", text, re.S | re.M)
    return [code for apart, code in blocks if not apart]


def test_every_page_with_python_is_run():
    if not DOCS.exists():
        pytest.skip("docs/ is not beside the tests")
    with_python = [page.name for page in DOCS.rglob("*.md") if re.search(r"^```py", page.read_text("utf-8"), re.M)]
    assert sorted(with_python) == sorted(PAGES + RECIPES)


def assert_same_table(printed: str, shown: str) -> None:
    """The words are the same; numbers differ by no more than another kind of processor makes them."""
    number = r"\d+(?:\.\d+)?(?:e-\d+)?"
    assert re.sub(number, "#", printed).split() == re.sub(number, "#", shown).split()
    pairs = zip(re.findall(number, printed), re.findall(number, shown))
    assert all(float(one) == pytest.approx(float(other), rel=0.05, abs=5e-6) for one, other in pairs), printed


@pytest.mark.parametrize(
    "page", [page if page in QUICK else pytest.param(page, marks=pytest.mark.slow) for page in PAGES]
)
def test_python_on_a_page(page, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    if not DOCS.exists():
        pytest.skip("docs/ is not beside the tests")
    if page == "interchange.md":
        pytest.importorskip("anndata")
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in python_of(DOCS / page):
        exec(block, names)
    assert bool(list(tmp_path.glob("*.png"))) == (page in WITH_PICTURES)
    if page in WITH_OUTPUT:
        (shown,) = re.findall(r"```text\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)
        assert_same_table(capsys.readouterr().out, shown)


def test_the_commands_on_their_page(tmp_path, monkeypatch, capsys):
    """Every command of the page, in its order, on small files of the names it uses."""
    if not DOCS.exists():
        pytest.skip("docs/ is not beside the tests")
    pytest.importorskip("matplotlib")
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    pytest.importorskip("anndata")
    import scalable_gpe as gpe
    from scalable_gpe import cli

    monkeypatch.chdir(tmp_path)
    X = gpe.datasets.torus(400)
    np.save("points.npy", X)
    np.save("new.npy", gpe.datasets.torus(30, random_state=1))
    table = pd.DataFrame(X, columns=list("abcd"))
    table.insert(0, "name", [f"row {i}" for i in range(400)])
    table.to_csv("table.csv", index=False)
    pd.DataFrame({"kind": np.where(X[:, 0] > 0, "left", "right")}).to_csv("labels.csv", index=False)
    gpe.export(gpe.embed(X, n_components=4, power=8, n_neighbors=12), "cells.h5ad")
    text = (DOCS / "command-line.md").read_text(encoding="utf-8").replace("obsm/X_pca\n", "obsm/X_gpe\n")
    text = text.replace(" > audit.json", "")
    commands = [line for block in re.findall(r"```bash\n(.*?)```", text, re.S) for line in block.splitlines()]
    assert len(commands) >= 15
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "scalable-gpe"
        quick = ["--exact", "4", "--probes", "30"] if {"audit", "report"} & set(arguments) else []
        assert cli.main([*arguments, *quick]) == 0, (command, capsys.readouterr().err)
    assert {"powers.png", "other-axes.pdf", "page.html", "embedding.h5ad", "embedding.parquet", "placed.npy"} <= set(
        os.listdir()
    )
    assert pd.read_parquet("embedding.parquet").index[3] == "row 3"
