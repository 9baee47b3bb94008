"""Graphcore's ``ipu.distributed``: collectives of instances, which are simulated hosts, and their strategy.

It has Horovod's functions, as in Graphcore's releases for TensorFlow 1, and takes the arguments of its releases for
TensorFlow 2 too:

>>> import numpy as np
>>> from ipusim.ipu import distributed, horovod
>>> from ipusim.ipu.reduce_op import ReduceOp
>>> def program():
...     rank = np.float32(distributed.rank())
...     return distributed.allreduce(rank, ReduceOp.SUM).item(), distributed.broadcast(rank, root_rank=1).item()
>>> horovod.run(program, np=2)
[(1.0, 1.0), (1.0, 1.0)]
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ipusim.ipu.distributed.host_collective_ops import allgather, allreduce, broadcast
from ipusim.ipu.horovod import Adasum, Average, Sum, init, local_rank, local_size, rank, shutdown, size

__all__ = [
    "Adasum",
    "Average",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "init",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]

#: Modules by their names here, of which Graphcore has some in ``ipu.horovod`` too.
_MODULES: Final = {
    "host_collective_ops": f"{__name__}.host_collective_ops",
    "ipu_horovod_strategy": "ipusim.ipu.horovod.ipu_horovod_strategy",
    "popdist_strategy": "ipusim.ipu.horovod.popdist_strategy",
}


def __getattr__(name: str) -> Any:
    """Return a module of Graphcore's by its name; raises AttributeError for another."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(_MODULES[name])
