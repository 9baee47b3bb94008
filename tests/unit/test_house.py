"""The shape of the package: which modules import which."""

from __future__ import annotations

import grimp
import networkx as nx


def test_no_circle_of_modules_imports_each_other() -> None:
    """Imports within functions and for type checking count: what two modules know of each other belongs in one."""
    graph = grimp.build_graph("ipusim", cache_dir=None)
    imports = nx.DiGraph(
        (module, found) for module in graph.modules for found in graph.find_modules_directly_imported_by(module)
    )
    assert imports.has_edge("ipusim.model.layers.python_layer", "ipusim.model.functions.counting")  # within a function
    assert [sorted(circle) for circle in nx.strongly_connected_components(imports) if len(circle) > 1] == []
