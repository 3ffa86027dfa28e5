"""The notebooks of the documentation show the code of their sources, with output of one whole run."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NAMES = ["fashion-mnist", "larger-than-memory", "single-cell"]
PATHS = re.compile(r"/(?:home|root|tmp|Users|work|private)/\w")


def cells_of(source: Path) -> list[tuple[str, str]]:
    """Kind and text of each cell of a script in jupytext's percent format."""
    cells = []
    for cell in re.split(r"^# %%", source.read_text(encoding="utf-8"), flags=re.M)[1:]:
        head, _, text = cell.partition("\n")
        if "[markdown]" in head:
            text = re.sub(r"^# ?", "", text, flags=re.M)
        cells.append(("markdown" if "[markdown]" in head else "code", text.strip()))
    return cells


@pytest.fixture(autouse=True)
def folder():
    if not FOLDER.exists():
        pytest.skip("docs/ is not beside the tests")


def test_every_notebook_is_tested():
    assert sorted(path.stem for path in FOLDER.glob("*.py") if path.name != "run.py") == NAMES
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_is_made_from_its_source(name):
    source = FOLDER / f"{name}.py"
    notebook = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    shown = [(cell["cell_type"], "".join(cell["source"]).strip()) for cell in notebook["cells"]]
    assert shown == cells_of(source), f"run python docs/notebooks/run.py {name}"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    texts = [
        {kind: text for kind, text in output.get("data", output).items() if "image" not in kind} for output in outputs
    ]
    assert not PATHS.search(json.dumps(texts))
