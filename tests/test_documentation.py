"""The code in the documentation runs: examples in docstrings, the README's code, the paper's script."""

import doctest
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import scalable_gpe

PACKAGE = Path(scalable_gpe.__file__).parent
SOURCE = Path(__file__).parents[1]
WITH_EXAMPLES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]


def in_source(name: str) -> Path:
    path = SOURCE / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the tests")
    return path


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_examples_in_docstrings(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    result = doctest.testmod(import_module(name.removesuffix(".__init__")))
    assert result.attempted > 0
    assert result.failed == 0


def test_python_in_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", in_source("README.md").read_text(encoding="utf-8"), re.S)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert names["Y"].shape == (5000, 32) and names["new"].shape == (100, 32)
    np.testing.assert_array_equal(names["large"].points[:], names["Y"])
    assert (tmp_path / "branches.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_papers_experiments_run(tmp_path):
    pytest.importorskip("matplotlib")
    script = in_source("examples/paper/run.py")
    command = [sys.executable, str(script), "--out", str(tmp_path), "--trials", "2", "--jobs", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.count("olds.*") + done.stdout.count("hold.*") + done.stdout.count("part.*") >= 14
    assert len(list(tmp_path.glob("*.png"))) == 10
    table = (tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()
    assert len(table) == len(in_source("docs/developers/paper-results.csv").read_text(encoding="utf-8").splitlines())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and Sphinx make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_files_lead_somewhere():
    links = [
        (page, target)
        for page in [*in_source("docs").rglob("*.md"), *SOURCE.glob("*.md")]
        for target in re.findall(
            r"\]\((?!https?://|mailto:|#scalable_gpe)([^)\s]+)\)", page.read_text(encoding="utf-8")
        )
    ]
    assert len(links) > 100
    for page, target in links:
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(to), f"{page.name}: {target}"


def test_the_pages_for_users_stay_short():
    """What only developers need is in docs/developers/."""
    pages = [in_source("README.md"), *in_source("docs").glob("*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) < 20_000


def test_every_test_that_a_page_names_exists():
    page = in_source("docs/developers/reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 30
    for file, test in named:
        assert re.search(rf"^def {test}\(", in_source(file).read_text(encoding="utf-8"), re.M), f"{file}::{test}"
