"""What a facility of the machine is: it carries out instructions of some IPUs, says who waits in it, and for whom."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

import simpy

from ipusim.machine.clock import Spans
from ipusim.pipeline.instructions import Code


class IpuId(NamedTuple):
    """One IPU that holds a stage.

    Attributes:
        number: its logical number on the device.
        replica: the replica of the pipeline that it belongs to.
        shard: its number within the replica.
    """

    number: int
    replica: int
    shard: int


class Wait(NamedTuple):
    """What an IPU waits for.

    Attributes:
        text: in words.
        ipus: the logical IPUs that keep it waiting; none where it is something else.
    """

    text: str
    ipus: tuple[int, ...] = ()


#: What carries out an instruction: (ipu, stage, micro-batch, number, step, cause) to the span that the IPU goes on
#: behind. That is there at once, or the value of an event, or what a part of a process returns. With an event comes the
#: description of the IPU's wait for it, where that is a span.
Handler = Callable[[IpuId, int, int, int, int, int], int | simpy.Event | tuple[simpy.Event, int] | Spans]


class Facility:
    """A part of the machine that IPUs meet in their instructions.

    Attributes:
        ipus: whose instructions it carries out.
        handlers: what carries out each of the instructions that it knows.
    """

    ipus: tuple[IpuId, ...]
    handlers: Mapping[Code, Handler]

    def waits_for(self, ipu: int) -> Wait | None:  # noqa: ARG002 - by default nobody waits for anything but time
        """Return what logical IPU ``ipu`` waits for here; None where it does not."""
        return None

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - by default nothing but events to come
        """Return all that its future depends on: times from now on, micro-batches counted from the first one."""
        return ()
