"""The strategy of PopDist and PopRun by its later name."""

from __future__ import annotations

from ipusim.ipu.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy
from ipusim.ipu.runtime import checks


class PopDistStrategy(IPUMultiReplicaStrategy):
    """Trains on the hosts of ``ipusim run --hosts``, each an instance of PopRun's, as IPUMultiReplicaStrategy does.

    Args:
        ipu_device: the device of each host that programs and queues of the scope are for.
        add_ipu_cross_replica_reductions: True; programs that train reduce their gradients by themselves.
        enable_dataset_iterators, enable_keras_extensions: without effect: both are always there.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        """Check the arguments."""
        super().__init__(ipu_device, add_ipu_cross_replica_reductions)
        checks.truth("enable_dataset_iterators", enable_dataset_iterators)
        checks.truth("enable_keras_extensions", enable_keras_extensions)
