"""Costs of host calls in passes: copies to the host, its work on its buffers and on the arrays, copies back.

The host's operations are calls of a library on one of its cores, with one rate whatever they are (assumed); what they
read and write beside its buffers for the IPU is in its caches (assumed). Cycles that a user gives are cycles of the
IPU's clock as they are.
"""

from __future__ import annotations

from fractions import Fraction

from ipusim.hardware.formulas import joined
from ipusim.hardware.system import System
from ipusim.lowering.side_instructions import SideInstructions
from ipusim.model.host_call import HostCall
from ipusim.model.work import MeasuredWork
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import laws
from ipusim.pricing.costs import PassHostCall
from ipusim.pricing.passes import leaves, operations


def host_calls(
    kinds: tuple[int, ...], program: PipelineProgram, system: System, side: SideInstructions
) -> dict[tuple[int, int], tuple[PassHostCall, ...]]:
    """Return the host calls of each (pass, stage) of these kinds, in order."""
    return {
        (kind, stage): tuple(_priced(call, system) for call in program.host_calls(kind, stage))
        for kind, stage in sorted(side.host_calls)
        if kind in kinds
    }


def _priced(call: HostCall, system: System) -> PassHostCall:
    """Return the price of a call.

    A multiply-accumulate is two operations of the host, and each product and each step of vector work a library call.
    """
    works = [work for work in leaves(call.work) if not (work.is_nothing or isinstance(work, MeasuredWork))]
    library_calls = sum(len(work.products) + work.compute_sets for work in works)
    operations_of = sum(2 * work.macs + operations(work.vector, system.rates) for work in works)
    counted = system.host_compute_cycles(library_calls, Fraction(operations_of))
    measured = sum(work.cycles for work in leaves(call.work) if isinstance(work, MeasuredWork))
    return PassHostCall(
        call=call,
        send=laws.OUTSIDE_OUT(system.outfeed_cycles(call.sent_bytes)),
        drain=system.host_drain_cycles(call.sent_bytes),
        compute=joined(counted, measured),
        fill=system.host_fill_cycles(call.returned_bytes),
        read=laws.OUTSIDE_IN(system.infeed_cycles(call.returned_bytes)),
    )
