"""The Python on the documentation's pages runs, from the top of a page to its end."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


WITH_PICTURES = ["quickstart.md", "choosing-parameters.md"]


@pytest.mark.parametrize("page", [*WITH_PICTURES, "new-points.md", "audit.md", "isolated-rows.md"])
def test_python_on_a_page(page, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    if not DOCS.exists():
        pytest.skip("docs/ is not beside the tests")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert bool(list(tmp_path.glob("*.png"))) == (page in WITH_PICTURES)
