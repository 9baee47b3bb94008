"""Programs for simulated IPUs under TensorFlow as the host: sessions of TensorFlow 1, functions of TensorFlow 2.

| module | content |
| --- | --- |
| ``sessions`` | which session runs, and runs inside of its runs |
| ``savers`` | TensorFlow's Saver, which refuses checkpoints of an earlier ipusim |
| ``queues`` | infeeds that pull from a session's iterators, outfeeds that fill in simulated time |
| ``operations``, ``collectives``, ``host_tables`` | Graphcore's operations as nodes |
| ``python_functions`` | Python functions of a program's own, which the host runs |
| ``device_program`` | a traced step as a program of the machine, which goes on from TensorFlow's variables |
| ``pipelines`` | a pipeline's stages, traced into one node |
| ``loops``, ``bodies`` | a loop's body, traced into one node, as a program |
| ``functions``, ``function_loops`` | functions of TensorFlow 2, which a strategy runs; loops in them as programs |
| ``computation`` | a compiled computation: the operation that reads variables, runs nodes and programs, and assigns |

TensorFlow runs the host: data sets, variables, savers, hooks. It never executes a node of a compiled computation. Nodes
of a computation outside of pipelines and loops run in NumPy too, and take no simulated time.
"""
