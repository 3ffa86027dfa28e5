"""The package as a whole: quick to import, imports that run one way, one folder per foreign package."""

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import scalable_gpe as gpe

ROOT = Path(gpe.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
HEAVY = [
    "numba",
    "sklearn",
    "matplotlib",
    "zarr",
    "dask",
    "pynndescent",
    "pandas",
    "scipy",
    "pyarrow",
    "h5py",
    "anndata",
]


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names of all modules that a file imports, at its top or inside a function."""
    return frozenset(find_imports(path))


def find_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively; write the name in full"
            yield str(node.module)
            yield from (f"{node.module}.{name.name}" for name in node.names)


LAYERS = {
    "loops",
    "storage",
    "execution",
    "io",
    "graph",
    "heat",
    "multilevel",
    "spectral",
    "sketch",
    "propagation",
    "transform",
    "accuracy",
    "cli",
    "html_report",
    "plot",
    "pl",
}
FOUNDATION = {"errors", "checks", "formatting"}


def layer(name: str) -> str:
    """The layer of a module: its folder, `foundation` for what every module may import, or `face` for the rest."""
    first = name.removeprefix("scalable_gpe").strip(".").split(".")[0]
    return first if first in LAYERS else "foundation" if first in FOUNDATION else "face"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_import_is_light():
    code = (
        "import time, sys, json; start = time.process_time(); import scalable_gpe; "
        f"print(json.dumps([time.process_time() - start, [m for m in {HEAVY} if m in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, loaded = json.loads(done.stdout)
    assert loaded == []
    assert seconds < 1


def test_exact_needs_no_compiler():
    code = "import sys; from scalable_gpe import exact; print([m for m in ('numba', 'zarr') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", gpe.__all__)
def test_every_public_name_is_there(name):
    assert name in dir(gpe)
    value = getattr(gpe, name)
    assert value.__doc__


def test_the_table_of_names_is_complete():
    assert sorted(gpe.__all__) == sorted([*gpe._MODULE_OF, *gpe._MODULES])


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    seen = [name.asname or name.name for node in block.body for name in node.names]
    assert sorted(seen) == sorted(gpe.__all__)


@pytest.mark.parametrize("name", ["", *gpe._MODULES])
def test_completion_shows_public_names_only(name):
    module = getattr(gpe, name) if name else gpe
    assert {one for one in dir(module) if not one.startswith("__")} == set(module.__all__)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'embedd'"):
        _ = gpe.embedd


def project_table() -> dict:
    pyproject = ROOT.parent / "pyproject.toml"
    if not pyproject.exists():
        pytest.skip("installed without its source")
    return tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]


def test_version():
    assert gpe.__version__ == version("scalable-gpe"), "the installed version is an older one: run pip install -e ."


def test_the_version_is_in_one_place():
    assert "version" in project_table()["dynamic"]
    assert "\nversion:" not in (ROOT.parent / "CITATION.cff").read_text(encoding="utf-8")


def test_the_conda_recipe_says_the_same():
    import yaml

    project = project_table()
    recipe = yaml.safe_load((ROOT.parent / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == gpe.__version__
    assert f">={recipe['context']['python_min']}" == project["requires-python"]
    required = [line for line in recipe["requirements"]["run"] if not line.startswith(("__unix", "python "))]
    as_in_conda = [line.replace("dask>", "dask-core>").replace(">", " >") for line in project["dependencies"]]
    assert sorted(required) == sorted(as_in_conda)


def test_typed():
    assert (ROOT / "py.typed").exists()


# what each folder may import besides itself and the foundation: a stage imports the results of earlier stages
BELOW: dict[str, set[str]] = {
    "foundation": set(),
    "loops": set(),
    "storage": set(),
    "execution": {"storage", "loops"},
    "io": {"storage", "loops"},
    "graph": {"io", "execution", "storage", "loops"},
    "heat": {"graph", "io", "execution", "storage", "loops"},
    "multilevel": {"heat", "graph", "execution", "storage", "loops"},
    "spectral": {"multilevel", "heat", "execution", "storage", "loops"},
    "sketch": {"spectral", "multilevel", "heat", "execution", "storage", "loops"},
    "propagation": {"sketch", "multilevel", "heat", "execution", "storage", "loops"},
    "transform": {"sketch", "heat", "graph", "io", "execution", "storage", "loops"},
    "face": {
        *("propagation", "sketch", "spectral", "multilevel", "heat", "graph", "transform"),
        *("io", "execution", "storage", "loops"),
    },
}
BELOW["accuracy"] = {"face", *BELOW["face"]}
BELOW["plot"] = BELOW["accuracy"] | {"accuracy"}
BELOW["html_report"] = BELOW["pl"] = BELOW["plot"] | {"plot"}
BELOW["cli"] = BELOW["html_report"] | {"html_report"}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_run_one_way(path):
    here = layer("scalable_gpe." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
    reached = {layer(name) for name in imports(path) if name.startswith("scalable_gpe.")}
    names_only = path == ROOT / "__init__.py"  # the table of public names
    assert names_only or reached <= BELOW[here] | {here, "foundation"}


# the files that may import a foreign package; a folder stands for all its files
ROOMS = {
    # datasets.write makes plain arrays, not stores
    "zarr": ("storage/", "io/", "datasets.py"),
    "h5py": ("io/",),
    "pyarrow": ("io/",),
    "anndata": ("io/",),
    "fsspec": ("storage/",),
    "dask": ("execution/",),
    "distributed": ("execution/cluster",),
    "pynndescent": ("graph/",),
    "numba": ("loops/",),
    "click": ("cli/",),
    "matplotlib": ("plot/",),
}


@pytest.mark.parametrize("package", ROOMS)
def test_one_room_per_foreign_part(package):
    users = {relative(path) for path in MODULES if package in {name.split(".")[0] for name in imports(path)}}
    assert {user for user in users if not user.startswith(ROOMS[package])} == set()


def test_only_declared_packages_are_imported():
    project = project_table()
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    declared = {line.split(">=")[0].replace("-", "_") for line in [*project["dependencies"], *extras]}
    declared = (declared - {"scikit_learn"}) | {"sklearn", "scalable_gpe"}
    used = {name.split(".")[0] for path in MODULES for name in imports(path)}
    assert used - declared - set(sys.stdlib_module_names) == set()


def test_the_extra_for_tables_has_what_its_recipe_imports():
    extras = project_table()["optional-dependencies"]
    assert {line.split(">=")[0] for line in extras["tables"]} == {"pandas", "pyarrow"}
    assert set(extras["tables"]) <= set(extras["test"])
