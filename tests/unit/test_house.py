"""The shape of the package: which modules import which, and how long they are."""

from __future__ import annotations

import ast
import statistics

import grimp
import networkx as nx

from tests.places import ROOT


def test_no_circle_of_modules_imports_each_other() -> None:
    """Imports within functions and for type checking count: what two modules know of each other belongs in one."""
    graph = grimp.build_graph("ipusim", cache_dir=None)
    imports = nx.DiGraph(
        (module, found) for module in graph.modules for found in graph.find_modules_directly_imported_by(module)
    )
    assert imports.has_edge(
        "ipusim.model.functions.python_layer", "ipusim.model.functions.counting"
    )  # within a function
    assert [sorted(circle) for circle in nx.strongly_connected_components(imports) if len(circle) > 1] == []


def statements(node):
    """Yield all statements of a module, and nothing of what they compute, in which no function is defined."""
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        within = getattr(node, part, None)
        for each in within if isinstance(within, list) else ():
            yield each
            yield from statements(each)


def test_no_module_is_long_and_no_function_but_one_of_graphcores_signature():
    modules = {path: path.read_text() for path in (ROOT / "ipusim").rglob("*.py")}
    lengths = {path: len(text.splitlines()) for path, text in modules.items()}
    assert {str(path): length for path, length in lengths.items() if length > 400} == {}
    assert statistics.median(lengths.values()) <= 120
    functions = [
        (node.end_lineno - node.lineno + 1, node.name)
        for text in modules.values()
        for node in statements(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]
    assert [name for length, name in functions if length > 60] == ["pipeline"]
