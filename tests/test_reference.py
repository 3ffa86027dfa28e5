"""The reference is complete: public names and their members, keys of the report, options of the command line."""

import dataclasses
import importlib.util
import inspect
import re
from pathlib import Path
from types import NoneType
from typing import get_args

import pytest

import scalable_gpe as gpe
from scalable_gpe.cli import COMMANDS
from scalable_gpe.report import Report

DOCS = Path(__file__).parents[1] / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="docs/ is not beside the tests")

# members that are for the library itself; every other one must be in the reference
INTERNAL = {
    "GraphClassifier": {"set_score_request"},
    "Embedding": {
        "columns_of", "distance_error", "dropped", "filters", "row_components", "settings",
        "sketch_columns",
    },
    "NeighborGraph": {
        "context", "dropped", "name", "storage_order", "lists", "list_distances", "edges", "points", "scan", "metadata",
        "open",
        "summary", "exponent", "in_user_units", "stored_epsilon", "user_epsilon", "radius", "sampled_distances",
        "sampled_points",
    },
    "SparseKernel": {
        "context", "name", "storage_order", "edges", "scales", "warning", "counted_components", "open", "summary",
        "stored_epsilon", "diagonal",
    },
    "HeatKernel": {
        "context", "name", "scale_points", "warning", "open", "summary", "is_centred", "isolated",
        "step_rows", "step_scale", "total_weight", "weights", "diagonal", "last_change", "n_isolated_points",
    },
}  # fmt: skip


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def described() -> dict[str, set[str] | None]:
    """Names that the pages describe, each with the members that it lists (None: it lists none)."""
    found: dict[str, set[str] | None] = {}
    for page in ("reference.md", "questions.md"):
        directives = re.findall(
            r"^\.\. auto(?:function|class|module):: scalable_gpe\.([\w.]+).*\n((?:   .*\n)*)", read(page), re.M
        )
        for name, options in directives:
            listed = re.search(r":members:(.*(?:\n      .*)*)", options)
            found[name] = None if listed is None else set(re.findall(r"\w+", listed[1]))
    return found


@pytest.mark.parametrize("name", gpe.__all__)
def test_every_public_name_is_described(name):
    assert name in described(), f"docs/reference.md has no entry for {name}"


@pytest.mark.parametrize("name", gpe._MODULES)
def test_every_name_of_a_public_module_is_described(name):
    listed = described()[name]
    assert listed is not None
    # an empty list of members means all of __all__
    assert not listed or listed == set(getattr(gpe, name).__all__)


@pytest.mark.parametrize("name", [name for name in gpe.__all__ if inspect.isclass(getattr(gpe, name))])
def test_every_member_of_a_class_is_described(name):
    cls = getattr(gpe, name)
    own = [owner for owner in cls.__mro__ if owner.__module__.startswith("scalable_gpe")]
    names = [name for owner in own for name in [*vars(owner), *getattr(owner, "__annotations__", {})]]
    names += set(inspect.signature(cls.__init__).parameters) - {"self", "args", "kwargs"}
    members = {name for name in names if not name.startswith("_")}
    written = in_docstring(cls) | (described()[name] or set())
    fitted = {member for member in written - members if member.endswith("_")}  # set by fit, not declared
    assert members - INTERNAL.get(name, set()) == written - fitted


def in_docstring(cls: type) -> set[str]:
    """The parameters and attributes that the docstring of a class describes."""
    sections = re.findall(r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=\n\n|\Z)", inspect.getdoc(cls), re.S | re.M)
    lines = [line for text in sections for line in re.findall(r"^(\w[\w, ]*)(?: : .*)?$", text, re.M)]
    return {name for line in lines for name in line.split(", ")}


def test_every_error_says_what_to_do():
    rows = dict(re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", read("questions.md"), re.M))
    assert sorted(rows) == sorted(gpe.errors.__all__)
    classes = vars(gpe.errors).values()
    own = {one.__name__ for one in classes if inspect.isclass(one) and issubclass(one, Exception)}
    assert own == set(gpe.errors.__all__)


def test_every_key_of_the_report_is_described():
    rows = dict(re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", read("report-keys.md"), re.M))
    fields = {field.name: field.type for field in dataclasses.fields(Report)}
    assert sorted(rows) == sorted(fields)
    may_be_none = {name for name, kind in fields.items() if NoneType in get_args(kind)}
    assert {name for name, when in rows.items() if when != "never"} == may_be_none


def test_the_options_of_the_command_line_are_current():
    script = DOCS / "command_line_options.py"
    specification = importlib.util.spec_from_file_location("command_line_options", script)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert read("command-line-options.md") == module.page(), "run python docs/command_line_options.py"
    for command in COMMANDS:
        assert f"\n## {command.name}\n" in module.page()
        assert all(f"`{flag}" in module.page() for one in command.params for flag in one.opts if flag.startswith("-"))
