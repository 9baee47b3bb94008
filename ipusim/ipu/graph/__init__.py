"""Graphs that TensorFlow has traced, executed and priced without TensorFlow.

TensorFlow traces a program and runs its host part. Nodes placed on simulated IPUs are read from TensorFlow's graph once
(:mod:`ipusim.ipu.graph.reading`), as plain :class:`~ipusim.ipu.graph.node.Node` values, and executed with NumPy.

| module | content |
| --- | --- |
| ``tensorflow_import`` | settings that TensorFlow reads at its import, and the import itself |
| ``node`` | a node as plain Python values; variables |
| ``registry`` | kernels by operation type |
| ``kernels/`` | the kernels, one module for each family of operations |
| ``reading`` | nodes of a TensorFlow graph; the only module of execution that knows TensorFlow |

How to add a kernel for an operation type:

1. Find the family's module in ``ipusim/ipu/graph/kernels/``, or add one and list its name in ``FAMILIES`` of
   ``ipusim/ipu/graph/kernels/__init__.py``. A kernel imports NumPy and this package alone, never TensorFlow.
2. An operation without attributes that matter is one function of arrays:
   ``register_function("Add AddV2", np.add)``. Otherwise write a maker, which reads the node's attributes once and
   returns the function of arrays::

       @register("LeakyRelu")
       def leaky_relu(node: Node) -> Kernel:
           slope = node.attributes["alpha"]
           return lambda x: np.where(x > 0, x, x * x.dtype.type(slope))

   The function takes one value for each input of the node, in TensorFlow's order. It returns the value of a single
   output, a tuple of several outputs, or None without outputs. It never changes an argument in place. Dtypes of
   results are the node's ``output_types``; shapes are TensorFlow's.
3. ``register(..., effect=True)`` marks an operation that runs although nothing reads its results, such as an
   assignment. ``register(..., draws=True)`` marks one that draws: its function takes a ``numpy.random.Generator``
   before its inputs, which the interpreter seeds.
4. A resource handle arrives as a :class:`~ipusim.ipu.graph.node.Variable`, whose ``value`` is read and ``assign``-ed.
5. Add cases to the family's module in ``tests/golden/graph/``, at ordinary and special points (zeros, ties, bounds,
   infinities, NaN, empty arrays, each attribute that changes the result). The test holds each against eager
   TensorFlow. A registered type without a case fails ``tests/golden/graph/test_all_kernels.py``.
"""
