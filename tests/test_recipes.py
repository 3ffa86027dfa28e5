"""The four recipes of the documentation run as printed: commands and Python, from the top of a page to its end.

Only the number of rows is another one: the line ``n_rows = ...`` of a page says how many its example has.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import scalable_gpe as gpe
from scalable_gpe import cli

DOCS = Path(__file__).parents[1] / "docs"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DOCS.exists(), reason="docs/ is not beside the tests"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),
]


def blocks_of(page: str, n_rows: int | None = None) -> list[tuple[str, str]]:
    """Kind and code of each block, for another number of rows; those that say "not run" need machines or a bucket."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if n_rows is not None:
        text, n_replaced = re.subn(r"^n_rows = [\d_]+", f"n_rows = {n_rows}", text, flags=re.M)
        assert n_replaced == 1
    blocks = re.findall(r"^(<!-- not run.*-->\n)?```(\w+)\n(.*?)```", text, re.S | re.M)
    return [(kind, code) for apart, kind, code in blocks if not apart]


def run(blocks: list[tuple[str, str]]) -> dict:
    """Run Python and commands in one namespace and the current folder; installations are left out."""
    names: dict = {"__name__": "page"}
    for kind, code in blocks:
        if kind == "bash":
            for line in code.splitlines():
                program, *arguments = shlex.split(line, comments=True)
                assert program in ("pip", "scalable-gpe")
                assert program == "pip" or cli.main(arguments) == 0, line
        else:
            assert kind in ("py", "python")
            exec(code, names)
    return names


def test_the_recipe_for_scanpy(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    pytest.importorskip("igraph")
    scanpy = pytest.importorskip("scanpy")
    monkeypatch.chdir(tmp_path)
    names = run(blocks_of("scanpy.md"))
    adata, exported = names["adata"], scanpy.read_h5ad("cells-gpe.h5ad")
    assert np.isfinite(adata.obs["gpe_pseudotime"]).mean() > 0.9
    assert 2 < adata.obs["gpe_leiden"].nunique() < 50
    np.testing.assert_array_equal(exported.obsm["X_gpe"], adata.obsm["X_gpe"])
    assert exported.obs["gpe_leiden"].tolist() == adata.obs["gpe_leiden"].tolist()
    assert adata.obsp["searched_distances"].shape == (700, 700) and "dpt_pseudotime" in adata.obs


def test_the_recipe_for_a_table(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    names = run(blocks_of("tables.md", n_rows=800))
    assert adjusted_rand_score(names["habit"], names["groups"]) > 0.9  # the kinds of customers are found
    share = names["share"]
    assert share[["minutes", "visits", "returns"]].min() > 0.8 > 0.1 > share[["income", "joined"]].max()
    assert pd.read_parquet("embedding.parquet").index.tolist() == names["table"]["name"].tolist()
    assert pd.read_csv("embedding.csv")["name"].tolist() == names["table"].dropna()["name"].tolist()
    assert Path("customers.html").stat().st_size > 10_000 and Path("groups.png").stat().st_size > 10_000


def test_the_recipe_for_data_larger_than_memory(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    names = run(blocks_of("larger-than-memory.md", n_rows=3000))
    assert names["labels"].shape == (3000,) and len(set(names["labels"])) == 10
    np.testing.assert_array_equal(np.load("embedding.npy"), names["array"].compute())
    assert Path("density.png").stat().st_size > 10_000 and Path("page.html").stat().st_size > 10_000


def test_the_recipe_for_a_cluster(tmp_path):
    pytest.importorskip("distributed")
    ((install, pip), *python) = blocks_of("cluster.md", n_rows=3000)
    assert install == "bash" and pip.startswith("pip install")
    script = tmp_path / "page.py"
    script.write_text("\n".join(code for _, code in python), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path, capture_output=True, text=True)
    result = gpe.open(tmp_path / "run.zarr")
    assert result.points.shape == (3000, 32) and result.report["cluster"].startswith("2 workers"), done.stdout
