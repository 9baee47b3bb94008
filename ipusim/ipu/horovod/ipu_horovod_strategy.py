"""The strategy that sums gradients up by Horovod, over the network of the hosts."""

from __future__ import annotations

from ipusim.ipu.host_strategy import HostStrategy, refuse_on_host


class IPUHorovodStrategy(HostStrategy):
    """Trains on the hosts that ``horovod.run`` has started.

    Arguments:
        ipu_device: the device, of which each host has one.
        variables_on_host: False; weight updates run on IPUs.
    """

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False) -> None:
        """Check the arguments; raises UnsupportedProgramError for variables on the host."""
        super().__init__(ipu_device)
        refuse_on_host(variables_on_host)
