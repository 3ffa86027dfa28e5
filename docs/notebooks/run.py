"""Run the notebooks, and write them with their output.

    pip install -e ".[anndata,plot,docs]" scanpy igraph umap-learn xarray
    python docs/notebooks/run.py                        all of them, at the sizes that the documentation shows
    python docs/notebooks/run.py single-cell --quick    one of them, with few rows
    python docs/notebooks/run.py --quick --out FOLDER   somewhere else
    python docs/notebooks/run.py --text                 new text, the output as it is; refused if code has changed

A notebook is a Python file in jupytext's percent format. Its .ipynb is made from it here, and the documentation shows
that; do not edit it.
"""

import argparse
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.py") if path != Path(__file__))
QUICK = {"N_CELLS": "4000", "N_IMAGES": "3000", "N_ROWS": "30000"}
# the input of the notebooks and their output must not tell where they ran
_PATHS = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|Users|work|private)/[^\s'\"<>]+")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    if options.quick:
        os.environ.update(QUICK)
    for name in options.names:
        if name == "fashion-mnist" and not options.text and not options.fashion.exists():
            print(f"{name}: left out, its files are not there (Debian: dataset-fashion-mnist; or --fashion)")
            continue
        os.environ["FASHION_MNIST"] = str(options.fashion.resolve())
        path = options.out / f"{name}.ipynb"
        made = retold(HERE / f"{name}.py", path) if options.text else executed(HERE / f"{name}.py")
        path.write_text(made, encoding="utf-8")
        print(f"{name}: {path}", flush=True)


def executed(source: Path) -> str:
    """Run a notebook in an empty folder; return it as JSON."""
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    notebook = jupytext.read(source)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=3600, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    return str(nbformat.writes(_clean(notebook)))


def retold(source: Path, path: Path) -> str:
    """Take the text from the source and the output from a notebook whose code is the same."""
    import jupytext
    import nbformat

    notebook, known = jupytext.read(source), nbformat.read(path, as_version=4)
    ran = [cell for cell in known.cells if cell.cell_type == "code"]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.source for cell in ran] != [cell.source for cell in code]:
        raise ValueError(f"the code of {source.name} has changed: run it")
    for cell, before in zip(code, ran, strict=True):
        cell.outputs, cell.execution_count = before.outputs, before.execution_count
    return str(nbformat.writes(_clean(notebook)))


def _clean(notebook: Any) -> Any:
    """Keep what a reader needs; equal runs give equal files."""
    language = {"name": "python"}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": language}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            _refuse_paths(str([{**one, "data": _text(one)} for one in cell.outputs]))
    return notebook


def _text(output: Any) -> dict[str, Any]:
    return {kind: value for kind, value in output.get("data", {}).items() if not kind.startswith("image/")}


def _refuse_paths(text: str) -> None:
    found = _PATHS.findall(text)
    if found:
        raise ValueError(f"the output names paths of this machine: {found}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--text", action="store_true", help="change only the text")
    parser.add_argument("--quick", action="store_true", help="few rows, to see that the code runs")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the .ipynb files")
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no notebook is named {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    return options


if __name__ == "__main__":
    main()
