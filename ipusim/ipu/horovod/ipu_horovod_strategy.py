"""The strategy that sums gradients up by Horovod, over the network of the hosts."""

from __future__ import annotations

from ipusim.ipu.ipu_strategy import HostStrategy


class IPUHorovodStrategy(HostStrategy):
    """Trains on the hosts that ``horovod.run`` has started.

    Args:
        ipu_device: the device of each host that programs and queues of the scope are for.
        variables_on_host: whether the host has the variables: a loop's body enqueues gradients, and apply_gradients
            is called on the host.
    """
