"""IPUs, IPU-Links, hosts and the named systems built from them.

As ``hardware`` of :mod:`ipusim.api` this room offers tables of machines, generations, rates and selection orders, and
:func:`build_system`, which builds a System.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.hardware.build import build_system, replication_factor, shards_of
    from ipusim.hardware.collectives.choose import fastest_all_reduce
    from ipusim.hardware.devices import Device, device_listing, devices_of, first_device, select_device
    from ipusim.hardware.disturbances import Disturbance, Jitter
    from ipusim.hardware.formulas import number
    from ipusim.hardware.generations import BOW, GC200, IpuSpec, find_ipu
    from ipusim.hardware.host import HostSpec
    from ipusim.hardware.links import LinkDirection
    from ipusim.hardware.machines import MACHINES, find_machine
    from ipusim.hardware.orders import ORDERS, physical_ipus
    from ipusim.hardware.rate import Rate
    from ipusim.hardware.rates import DEFAULT_RATES, RATES, Rates
    from ipusim.hardware.streaming import StreamingMemory
    from ipusim.hardware.system import FRAMEWORKS, ON_POPART
else:
    __getattr__, __dir__ = lazy(__name__)
