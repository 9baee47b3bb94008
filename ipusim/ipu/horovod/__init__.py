"""Horovod's functions on several simulated hosts, each of which is a process of Horovod's.

``run`` starts them, and each calls the same function; ``ipusim run program.py --hosts 3`` runs a whole file on each:

>>> import numpy as np
>>> from ipusim.ipu import horovod as hvd
>>> def program():
...     return hvd.allreduce(np.float32(hvd.rank())).item(), hvd.allgather(np.full(hvd.rank(), hvd.rank())).tolist()
>>> hvd.run(program, np=3)
[(1.0, [1, 2, 2]), (1.0, [1, 2, 2]), (1.0, [1, 2, 2])]

Hosts come to their collectives in the same order, and agree on the names of those that have one. What collectives
take over the hosts' network stands in the Timeline of the next program that a host runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ipusim.ipu.horovod.collectives import (
    Adasum,
    Average,
    Max,
    Min,
    Operation,
    Product,
    Sum,
    allgather,
    allreduce,
    broadcast,
)
from ipusim.ipu.horovod.hosts import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    run,
    shutdown,
    size,
)

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Operation",
    "Product",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "run",
    "shutdown",
    "size",
]

_MODULES: Final = ("ipu_horovod_strategy", "ipu_multi_replica_strategy", "popdist_strategy")


def __getattr__(name: str) -> Any:
    """Return a module of Graphcore's by its name; raises AttributeError for another."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
