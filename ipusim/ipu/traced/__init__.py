"""Programs for simulated IPUs in TensorFlow's sessions: what is placed on IPUs is one operation of the host's graph.

| module | content |
| --- | --- |
| ``sessions`` | which session runs, and runs inside of its runs |
| ``queues`` | infeeds that pull from a session's iterators, outfeeds that fill in simulated time |
| ``device_program`` | a traced step as a program of the machine, which goes on from TensorFlow's variables |
| ``pipelines`` | a pipeline's stages, traced into one node |
| ``loops`` | a loop's body, traced into one node |
| ``functions`` | functions of TensorFlow 2, which a strategy runs; nodes outside of pipelines take no simulated time |
| ``computation`` | a compiled computation: the operation that reads variables, runs nodes and programs, and assigns |

TensorFlow runs the host: data sets, variables, savers, hooks. It never executes a node of a compiled computation.
"""
