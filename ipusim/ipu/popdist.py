"""Graphcore's PopDist: which instance of a distributed program this is, told by the simulated hosts.

``ipusim run program.py --hosts 2`` stands for ``poprun --num-instances 2 --num-replicas 2 program.py``: each host is an
instance with one replica. Without ``--hosts`` a program is the only instance:

>>> from ipusim.ipu import popdist
>>> popdist.getInstanceIndex(), popdist.getNumTotalReplicas()
(0, 1)
"""

from __future__ import annotations

import sys

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
    "tensorflow",
]

#: ``popdist.tensorflow`` has this module's names.
tensorflow = sys.modules[__name__]


def isPopdistEnvSet() -> bool:  # noqa: N802 - PopDist's name
    """Return whether several hosts run the program, as PopRun's instances do."""
    return machine.this_host() is not None


def getInstanceIndex() -> int:  # noqa: N802 - PopDist's name
    """Return the number of this host, from 0 up."""
    return rank()


def getNumInstances() -> int:  # noqa: N802 - PopDist's name
    """Return the number of hosts."""
    return size()


def getNumTotalReplicas() -> int:  # noqa: N802 - PopDist's name
    """Return the number of replicas of all hosts: one on each."""
    return size()


def getNumLocalReplicas() -> int:  # noqa: N802 - PopDist's name
    """Return the number of replicas of this host: one."""
    return 1


def getReplicaIndexOffset() -> int:  # noqa: N802 - PopDist's name
    """Return the number of this host's first replica among those of all hosts."""
    return rank()


def getNumIpusPerReplica() -> int:  # noqa: N802 - PopDist's name
    """Return the number of IPUs of a replica that PopRun uses by default: one."""
    return 1


def set_ipu_config(config: IPUConfig, ipus_per_replica: int | None = None, configure_device: bool = True) -> None:
    """Ask in a configuration for the IPUs of this host's replica.

    Args:
        config: the configuration, which is changed and not applied.
        ipus_per_replica: IPUs of the replica, one by default.
        configure_device: whether IPUs are asked for at all.
    """
    if configure_device:
        config.auto_select_ipus = getNumLocalReplicas() * (ipus_per_replica or getNumIpusPerReplica())
    config.experimental.multi_replica_distribution.process_count = size()
    config.experimental.multi_replica_distribution.process_index = rank()
