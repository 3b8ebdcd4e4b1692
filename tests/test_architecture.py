"""The rules that a reader relies on, read off the code: imports, sizes and names of files."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "anyorder"
MODULES = sorted(SOURCE.rglob("*.py"))

MOST_LINES = 600
MOST_MODULES, MOST_AT_THE_TOP, MOST_RANKS = 150, 8, 16

DOMAINS = {"tables", "text", "images", "robots"}
SHELLS = {"cli", "serve", "report"}
ON_TOP = {"reproduce", "demo"}


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    return name.removesuffix(".__init__")


NAMES = {module_name(path): path for path in MODULES}


@cache
def imported(name: str) -> frozenset[str]:
    """The modules of this package that a module imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(NAMES[name].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anyorder."):
            module = (node.module or "").removeprefix("anyorder.")
            inside = {f"{module}.{alias.name}" for alias in node.names}
            found |= (inside & NAMES.keys()) or {module}
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names if alias.name.startswith("anyorder.")}
            found |= {name.removeprefix("anyorder.") for name in names}
    return frozenset(found - {name})


def ranks(graph: dict[str, set[str]]) -> dict[str, int]:
    """How high each node stands above those that it imports; fails on a cycle."""
    found: dict[str, int] = {}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail("imports in a circle: " + " -> ".join(reversed(error.args[1])))
    for node in order:
        found[node] = 1 + max((found[other] for other in graph.get(node, ())), default=-1)
    return found


def test_no_module_imports_itself_by_way_of_others():
    ranks({name: set(imported(name)) for name in NAMES if not is_package(name)})


def test_no_package_imports_itself_by_way_of_others():
    packages: dict[str, set[str]] = {}
    for name in NAMES:
        own = name.partition(".")[0]
        others = {other.partition(".")[0] for other in imported(name)}
        packages.setdefault(own, set()).update(others - {own})
    assert max(ranks(packages).values()) < MOST_RANKS


@pytest.mark.parametrize("name", NAMES)
def test_shells_and_the_core_do_not_know_domains(name):
    """A domain is told to a shell by name: see `anyorder.domains`."""
    own = name.partition(".")[0]
    if own in DOMAINS | ON_TOP:
        return
    found = {other.partition(".")[0] for other in imported(name)}
    assert not found & (DOMAINS | ON_TOP)
    if own not in SHELLS | {"__main__"}:
        assert not found & SHELLS


def test_there_are_few_modules():
    assert len(MODULES) <= MOST_MODULES
    assert len(list(SOURCE.glob("*.py"))) <= MOST_AT_THE_TOP


def is_package(name: str) -> bool:
    return NAMES[name].name == "__init__.py"


@pytest.mark.parametrize("name", NAMES)
def test_imports_are_of_modules_that_exist(name):
    assert imported(name) <= NAMES.keys()


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_files_are_small_and_named_after_their_idea(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
    assert path.stem not in {"utils", "common", "core", "helpers", "base", "manager", "misc"}


def test_public_names_are_all_there():
    import anyorder

    assert len(anyorder.__all__) > 20
    for name in anyorder.__all__:
        found = getattr(anyorder, name)
        assert getattr(found, "__module__", found.__name__).startswith("anyorder.")
