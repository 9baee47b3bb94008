"""What a pass has the host do: the arrays' way there, the host's own work on its buffers and on them, their way back.

The host's operations take as long as one core needs for them, at one rate whatever they are (assumed); what they read
and write beside its buffers for the IPU is in its caches (assumed). Cycles that a user gives are cycles of the IPU's
clock as they are.
"""

from __future__ import annotations

from fractions import Fraction

from ipusim.hardware.rates import Rates
from ipusim.hardware.system import System
from ipusim.lowering.around import Around
from ipusim.model.outside_call import OutsideCall
from ipusim.model.work import MeasuredWork
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import PassOutside
from ipusim.pricing.passes import leaves, operations


def pass_outside(
    kinds: tuple[int, ...], program: PipelineProgram, system: System, asked: Around
) -> dict[tuple[int, int], tuple[PassOutside, ...]]:
    """Return what the host does in each (pass, stage) of these kinds, one after the other."""
    return {
        (kind, stage): tuple(_priced(call, system) for call in program.outside(kind, stage))
        for kind, stage in sorted(asked.outside)
        if kind in kinds
    }


def host_operations(call: OutsideCall, rates: Rates) -> Fraction:
    """Return the host's floating-point operations; a multiply-accumulate is two."""
    works = [work for work in leaves(call.work) if not isinstance(work, MeasuredWork)]
    return Fraction(sum(2 * work.macs + operations(work.vector, rates) for work in works))


def given_cycles(call: OutsideCall) -> int:
    """Return the cycles that are given for operations of the host's."""
    return sum(work.cycles for work in leaves(call.work) if isinstance(work, MeasuredWork))


def _priced(call: OutsideCall, system: System) -> PassOutside:
    return PassOutside(
        call=call,
        send=system.outfeed_cycles(call.sent_bytes),
        drain=system.host_drain_cycles(call.sent_bytes),
        compute=system.host_operations_cycles(host_operations(call, system.rates)) + given_cycles(call),
        fill=system.host_fill_cycles(call.returned_bytes),
        read=system.infeed_cycles(call.returned_bytes),
    )
