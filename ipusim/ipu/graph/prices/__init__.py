"""Prices of traced passes: the work of nodes, and of the simulator's layers that are recognised among nodes.

A pass is observed during one run, which shows all shapes, including shapes inside loops
(:mod:`~ipusim.ipu.graph.prices.observed`). Forward nodes that form a layer, such as product, bias and activation, cost
as much as the layer (:mod:`~ipusim.ipu.graph.prices.found`): the same model takes the same time in a scenario. Gradient
nodes belong to the layer of the differentiated node. Other nodes cost the work of their operation
(:mod:`~ipusim.ipu.graph.prices.nodes`).

To add a pattern, write a function in a module of this package that takes a
:class:`~ipusim.ipu.graph.prices.view.PassView` and a node, and returns a
:class:`~ipusim.ipu.graph.prices.layer.FoundLayer` or None. List the function in ``PATTERNS`` of ``found.py``, before
patterns with fewer nodes.
"""
