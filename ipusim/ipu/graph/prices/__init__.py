"""Prices of traced passes: the work of each node, and of nodes that together are a layer of the simulator.

A pass is observed while it runs once, so that every shape is known, those of loops too
(:mod:`~ipusim.ipu.graph.prices.observed`). Nodes of its forward pass that make up a layer, such as product, bias and
activation, cost what the layer costs (:mod:`~ipusim.ipu.graph.prices.found`): the same model as a scenario takes the
same time. Nodes of the gradient belong to the layer of the node that they are the gradient of. Any other node costs
what its own operation takes (:mod:`~ipusim.ipu.graph.prices.nodes`).

To add a pattern, write a function in a module of this package that takes a
:class:`~ipusim.ipu.graph.prices.view.PassView` and a node, and returns a
:class:`~ipusim.ipu.graph.prices.layer.FoundLayer` or None. List it in ``PATTERNS`` of ``found.py``, before patterns of
fewer nodes.
"""
