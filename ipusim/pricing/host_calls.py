"""Price host calls in passes: copies to the host, work on host buffers and arrays, copies back.

A host operation is a library call on a single core, and the rate does not depend on the kind of operation (assumed).
Operands outside the host's IPU buffers are in cache (assumed). Cycles given by a user count as cycles of the
IPU's clock, unchanged.
"""

from __future__ import annotations

from fractions import Fraction

from ipusim.hardware.formulas import join
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
    """Return priced host calls, in order, by pass kind and stage.

    Args:
        kinds: kinds of passes to include.
        program: stages with their host calls.
        system: device and host.
        side: passes that contain host calls.
    """
    return {
        (kind, stage): tuple(_price(call, system) for call in program.host_calls(kind, stage))
        for kind, stage in sorted(side.host_calls)
        if kind in kinds
    }


def _price(call: HostCall, system: System) -> PassHostCall:
    """Return a host call's price.

    A multiply-accumulate counts as two host operations. Every product and every step of vector work is a library call.
    """
    works = [work for work in leaves(call.work) if not (work.is_nothing or isinstance(work, MeasuredWork))]
    library_calls = sum(len(work.products) + work.compute_sets for work in works)
    operation_count = sum(2 * work.macs + operations(work.vector, system.rates) for work in works)
    arithmetic = system.host_compute_cycles(library_calls, Fraction(operation_count))
    measured_cycles = sum(work.cycles for work in leaves(call.work) if isinstance(work, MeasuredWork))
    return PassHostCall(
        call=call,
        send=laws.OUTSIDE_OUT(system.outfeed_cycles(call.sent_bytes)),
        drain=system.host_drain_cycles(call.sent_bytes),
        compute=join(arithmetic, measured_cycles),
        fill=system.host_fill_cycles(call.returned_bytes),
        read=laws.OUTSIDE_IN(system.infeed_cycles(call.returned_bytes)),
    )
