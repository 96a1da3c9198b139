"""Modules import each other in one direction, and scripts what exists."""

import ast
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*.py")])


def test_no_circle_of_imports():
    """Imports inside functions and for types count, and so do those of the packages that a module lies in."""
    graph = grimp.build_graph("fedbench", "fedbench_papers")
    TopologicalSorter({module: imported_by(graph, module) for module in graph.modules}).prepare()


def imported_by(graph: grimp.ImportGraph, module: str) -> set[str]:
    """To import a.b.c imports a and a.b too, unless the module lies in them."""
    direct = graph.find_modules_directly_imported_by(module)
    packages = {".".join(parts[:end]) for name in direct for parts in [name.split(".")] for end in range(1, len(parts))}
    return {name for name in direct | packages if not module.startswith(f"{name}.") and name != module}


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_scripts_import_what_exists(script):
    """No other test runs them."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0].startswith("fedbench"):
            module = import_module(node.module)
            names = {name.name for name in node.names if not hasattr(module, name.name)}
            modules = {found.name for found in iter_modules(getattr(module, "__path__", []))}
            assert not names - modules
