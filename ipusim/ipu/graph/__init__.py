"""Execution of graphs traced by TensorFlow, and their work on IPUs, without TensorFlow.

TensorFlow traces a program and runs the program's host part. :mod:`ipusim.ipu.graph.reading` reads nodes placed on
simulated IPUs once, as plain :class:`~ipusim.ipu.graph.node.Node` values; NumPy executes these nodes.

| module | content |
| --- | --- |
| ``tensorflow_import`` | TensorFlow's import, with the environment variables that TensorFlow reads |
| ``node`` | a node as plain Python values; variables |
| ``registry`` | kernels, the NumPy functions of nodes, by operation type |
| ``kernels/`` | kernels, one module per family of operations |
| ``reading`` | nodes of a TensorFlow graph; the only module of execution that imports TensorFlow |

How to add a kernel for an operation type:

1. Find the family's module in ``ipusim/ipu/graph/kernels/``, or add a module and list its name in ``FAMILIES`` of
   ``ipusim/ipu/graph/kernels/__init__.py``. A kernel imports only NumPy and this package, never TensorFlow.
2. Register a function of arrays, ``kernel("Add AddV2")(np.add)``. Name the attributes that matter, whose values stand
   before the arrays::

       @kernel("LeakyRelu", "alpha")
       def leaky_relu(slope: float, x: Array) -> Any:
           return np.where(x > 0, x, x * x.dtype.type(slope))

   The function takes one value per input of the node, in TensorFlow's order. It returns the value of one output, or
   a tuple with a value per output. Arguments are never changed in place. If more of the node than attributes matters,
   write a maker, which returns the function for a node, under ``@register``.
3. ``kernel(..., effect=True)`` marks operations that run even if no node reads their results, for example
   assignments. ``kernel(..., draws=True)`` marks random operations: the function takes a ``numpy.random.Generator``,
   seeded by the interpreter, before the inputs.
4. A resource handle arrives as a :class:`~ipusim.ipu.graph.node.Variable`; read ``value`` and call ``assign``.
5. Add cases to the family's module in ``tests/golden/graph/``, at ordinary and special points (zeros, ties, bounds,
   infinities, NaN, empty arrays, every attribute that changes the result). The test compares cases with eager
   TensorFlow. ``tests/golden/graph/test_all_kernels.py`` fails if a registered type has no case.
"""
