"""The strategy of a cluster of TensorFlow's, whose workers are simulated hosts."""

from __future__ import annotations

from ipusim.ipu.ipu_strategy import HostStrategy
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.distribute import TFConfigClusterResolver


class IPUMultiWorkerStrategy(HostStrategy):
    """Trains on the hosts of a cluster, which ``horovod.run`` has started.

    Args:
        cluster_resolver: says the cluster; its workers are the simulated hosts.
        ipu_device: the device of each host that programs and queues of the scope are for.
        variables_on_host: whether the host has the variables: a loop's body enqueues gradients, and apply_gradients
            is called on the host.
    """

    def __init__(
        self,
        cluster_resolver: TFConfigClusterResolver,
        ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ) -> None:
        """Check the arguments; raises ProgramTypeError."""
        expected = "a tf.distribute.cluster_resolver.TFConfigClusterResolver"
        checks.instance("cluster_resolver", cluster_resolver, TFConfigClusterResolver, expected)
        super().__init__(ipu_device, variables_on_host)
        self.cluster_resolver = cluster_resolver
