"""TensorFlow programs on simulated IPUs: TensorFlow 1 sessions and TensorFlow 2 functions.

| module | content |
| --- | --- |
| ``sessions`` | TensorFlow's running session, and nested runs inside a run |
| ``savers`` | TensorFlow's Saver, which refuses checkpoints written by an earlier ipusim |
| ``queues`` | infeeds that pull from a session's iterators; outfeeds that fill in simulated time |
| ``operations``, ``collectives``, ``host_tables`` | Graphcore's operations as nodes |
| ``python_functions`` | the program's Python functions, run by the host |
| ``device_program`` | a traced step as a program of the machine, starting from TensorFlow's variable values |
| ``pipelines`` | a pipeline's stages, traced into one node |
| ``loops``, ``bodies`` | a loop body, traced into one node, as a program |
| ``functions``, ``function_loops`` | TensorFlow 2 functions run by a strategy; loops inside as programs |
| ``computation`` | a compiled computation: one operation reads variables, runs nodes and programs, and assigns |

TensorFlow runs the host: data sets, variables, savers, hooks. TensorFlow never executes a node of a compiled
computation. Computation nodes outside pipelines and loops also run in NumPy, and take no simulated time.
"""
