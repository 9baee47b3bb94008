"""The simulated machine: the only code that knows SimPy.

As ``machine`` of :mod:`ipusim.api` this room offers parts for direct use: several hosts within a process, collectives
of hosts, BLAS on a single thread, which gives the same bits on any number of cores, and whether disturbances have an
effect, or change it.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.machine.disturbances import are_constant, disturbs
    from ipusim.machine.extent import most_spans
    from ipusim.machine.host_collectives import all_gather, all_reduce, broadcast, broadcast_all
    from ipusim.machine.hosts import Host, host_count, run_on, run_together, this_host
    from ipusim.machine.one_thread import one_blas_thread
    from ipusim.machine.timeline_info import timeline_info_of
else:
    __getattr__, __dir__ = lazy(__name__)
