"""The strategy of PopDist and PopRun: gradients are summed up over IPU-Links and GW-Links."""

from __future__ import annotations

from typing import ClassVar

from ipusim.base.errors import ProgramTypeError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.horovod import rank, size
from ipusim.ipu.ipu_strategy import HostStrategy
from ipusim.ipu.runtime import checks


class IPUMultiReplicaStrategy(HostStrategy):
    """Trains on the hosts that ``horovod.run`` has started, whose devices are parts of one machine.

    Before each weight update the IPUs of all hosts that hold the same sum their gradients up as replicas do, without
    the hosts. First variables are broadcast, and values reduced, over the hosts' network.

    Args:
        ipu_device: the device of each host that programs and queues of the scope are for.
        add_ipu_cross_replica_reductions: True; programs that train reduce their gradients by themselves.
    """

    over_links: ClassVar[bool] = True

    def __init__(self, ipu_device: str = "/device:IPU:0", add_ipu_cross_replica_reductions: bool = True) -> None:
        """Check the arguments."""
        super().__init__(ipu_device)
        checks.truth("add_ipu_cross_replica_reductions", add_ipu_cross_replica_reductions)

    def update_ipu_config(self, config: IPUConfig) -> IPUConfig:
        """Say in a configuration how many hosts there are and which this is; raises ProgramTypeError for another."""
        if not isinstance(config, IPUConfig):
            raise ProgramTypeError(f"`config` must be an IPUConfig object, got {type(config)}.")
        config.experimental.multi_replica_distribution.process_count = size()
        config.experimental.multi_replica_distribution.process_index = rank()
        return config
