"""Modules import each other in one direction only."""

import ast
import graphlib
from pathlib import Path

import scalable_gpe

ROOT = Path(scalable_gpe.__file__).parent


def imports() -> dict[str, set[str]]:
    """The modules that each module imports, at its top or within a function; those for types alone do not count."""
    files = {".".join(file.relative_to(ROOT.parent).with_suffix("").parts): file for file in ROOT.rglob("*.py")}
    files = {name.removesuffix(".__init__"): file for name, file in files.items()}
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        conditions = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
        for_types = [node for node in conditions if getattr(node.test, "id", "") == "TYPE_CHECKING"]
        skipped = {id(inner) for node in for_types for inner in ast.walk(node)}
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in skipped]
        pairs = [(str(node.module), alias.name) for node in nodes for alias in node.names]
        others = {f"{module}.{part}" if f"{module}.{part}" in files else module for module, part in pairs}
        found[name] = {other for other in others if other in files and other != name}
    return found


def test_no_modules_import_each_other():
    order = list(graphlib.TopologicalSorter(imports()).static_order())  # raises CycleError, which names the cycle
    assert order.index("scalable_gpe.checks") < order.index("scalable_gpe.pipeline")
