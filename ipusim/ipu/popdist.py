"""State number and index of a distributed program's instances, which are simulated hosts: PopDist.

``ipusim run program.py --hosts 2`` corresponds to ``poprun --num-instances 2 --num-replicas 2 program.py``: a host is
an instance with one replica. Without ``--hosts`` a program is the only instance:

>>> from ipusim.ipu import popdist
>>> popdist.getInstanceIndex(), popdist.getNumTotalReplicas()
(0, 1)
"""

from __future__ import annotations

import sys

import numpy as np

from ipusim.api import machine
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.runtime.hosts import init, rank, size

__all__ = [
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "set_ipu_config",
    "synchronize",
    "tensorflow",
]

#: ``popdist.tensorflow`` has this module's names.
tensorflow = sys.modules[__name__]


def isPopdistEnvSet() -> bool:  # noqa: N802 - PopDist's name
    """Return whether several hosts run the program, like PopRun's instances."""
    return machine.this_host() is not None


def getInstanceIndex() -> int:  # noqa: N802 - PopDist's name
    """Return the index of this host, starting at 0."""
    return rank()


def getNumInstances() -> int:  # noqa: N802 - PopDist's name
    """Return the number of hosts."""
    return size()


def getNumTotalReplicas() -> int:  # noqa: N802 - PopDist's name
    """Return the number of replicas of all hosts, one per host."""
    return size()


def getNumLocalReplicas() -> int:  # noqa: N802 - PopDist's name
    """Return the number of replicas of this host, always 1."""
    return 1


def getReplicaIndexOffset() -> int:  # noqa: N802 - PopDist's name
    """Return the index of this host's first replica among all hosts' replicas."""
    return rank()


def synchronize() -> None:
    """Wait until all hosts call this function. Hosts exchange one number over the network."""
    machine.all_reduce(machine.this_host(), "popdist.synchronize", np.zeros(1, np.int32), "sum")


def getNumIpusPerReplica() -> int:  # noqa: N802 - PopDist's name
    """Return PopRun's default number of IPUs per replica, 1."""
    return 1


def set_ipu_config(config: IPUConfig, ipus_per_replica: int | None = None, configure_device: bool = True) -> None:
    """Request the IPUs of this host's replica in a configuration.

    Args:
        config: configuration to change; the function does not apply it.
        ipus_per_replica: the replica's IPUs, 1 by default.
        configure_device: whether to request IPUs at all.
    """
    if configure_device:
        config.auto_select_ipus = getNumLocalReplicas() * (ipus_per_replica or getNumIpusPerReplica())
    config.experimental.multi_replica_distribution.process_count = size()
    config.experimental.multi_replica_distribution.process_index = rank()
