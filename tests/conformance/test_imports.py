"""Modules import each other in one direction."""

from graphlib import TopologicalSorter

import grimp


def test_no_circle_of_imports():
    """Imports inside functions and for types count, and so do those of the packages that a module lies in."""
    graph = grimp.build_graph("fedbench", "fedbench_papers")
    TopologicalSorter({module: imported_by(graph, module) for module in graph.modules}).prepare()


def imported_by(graph: grimp.ImportGraph, module: str) -> set[str]:
    """To import a.b.c imports a and a.b too, unless the module lies in them."""
    direct = graph.find_modules_directly_imported_by(module)
    packages = {".".join(parts[:end]) for name in direct for parts in [name.split(".")] for end in range(1, len(parts))}
    return {name for name in direct | packages if not module.startswith(f"{name}.") and name != module}
