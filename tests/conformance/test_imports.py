"""Modules import each other in one direction."""

from graphlib import TopologicalSorter

import grimp


def test_no_circle_of_imports():
    graph = grimp.build_graph("fedbench", exclude_type_checking_imports=True)
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()
