"""What IPUs hold under each schedule, and what is said when that is too much."""

from dataclasses import replace

import pytest

from ipusim.analysis.fit import Fit, fit
from ipusim.analysis.memory_summary import memory_summary
from ipusim.app.cli.tables import holder_table, memory_table
from ipusim.app.scenario import load_job
from ipusim.base.errors import OutOfMemoryError
from ipusim.base.units import format_bytes
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.footprint import footprint
from ipusim.pipeline.liveness import peaks
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from tests.scenarios import SCENARIOS

SCENARIO = SCENARIOS / "memory_by_schedule.yaml"


def laid_out():
    """Return Grouped's Plan of four stages, and what its IPUs hold."""
    held = {
        "output_bytes": 10,
        "gradient_bytes": 20,
        "parameter_bytes": 3_000,
        "state_bytes": 6_000,
        "accumulator_bytes": 4_000,
        "input_bytes": 50,
        "stash_bytes": 700,
        "working_bytes": 90,
        "weight_gradient_bytes": 500,
    }
    profiles = tuple(StageProfile(f"s{stage}", 100, 200, 10, **held) for stage in range(4))
    shape = PlanShape(mapping=(0, 1, 2, 3), micro_batches=16)
    plan = plan_of(find("grouped"), shape)
    return plan, footprint(plan, PipelineProgram(profiles, shape, infeed=Infeed(60), outfeed=Outfeed(8)))


MESSAGE = (
    "pipeline.allow_recompute: Out of memory on IPU 0: 1.047 GiB in pass F0.6, 175 MiB more than the 897 MiB of an "
    "IPU; code is not included. Largest: FIFO buffers 576 MiB, optimizer state 192 MiB, live tensors 100 MiB. Set "
    "allow_recompute, use the schedule interleaved with half the FIFO depth, or cut the model into more stages on more "
    "IPUs. With memory: report the program runs anyway; `ipusim check` lists the memory and time of each change."
)


def test_out_of_memory_is_an_error_unless_a_report_is_asked_for():
    for changes in (("memory=error",), ("memory=ERROR",)):
        with pytest.raises(OutOfMemoryError) as caught:
            execute(load_job(SCENARIO, changes))
        assert str(caught.value).startswith(f"{SCENARIO}:")
        assert str(caught.value).endswith(f": {MESSAGE}")
    result = execute(load_job(SCENARIO))
    told = memory_summary(result.memory, result.timeline)
    assert told.fits == "does not fit"
    assert [ipu.excess_bytes for ipu in told.ipus] == [175 * 2**20, 0, 0, 0]
    assert MESSAGE.startswith(f"pipeline.allow_recompute: {told.verdict.removeprefix('Memory: does not fit: ')}")
    assert [stage.most_micro_batches_kept for stage in told.stages] == [7, 5, 3, 1]
    table = memory_table(result.memory, result.timeline)
    assert table.header == ("IPU", "peak", "of 897 MiB", "too much by", "pass", "cycle")
    holders = holder_table(result.memory)
    assert holders.header == (*["IPU", "parameters", "optimizer", "gradients", "FIFOs", "copies"], "streams", "live")
    assert table.rows[0][:5] == ("0", "1.047 GiB", "119.5%", "175 MiB", "F0.6")
    assert holders.rows[0][1:] == ("96 MiB", "192 MiB", "96 MiB", "576 MiB", "8 MiB", "4 MiB", "100 MiB")
    assert table.rows[1][:5] == ("1", "740 MiB", "82.5%", "-", "F1.4")
    free = execute(load_job(SCENARIO, ("memory=off",)))
    assert memory_table(free.memory, free.timeline).header[:4] == ("IPU", "peak", "pass", "cycle")
    assert free.memory.verdict() == (
        "Memory: fits: memory is off, which sets no limit; the fullest is IPU 0 with 1.047 GiB; code is not included."
    )


def test_several_ipus_that_do_not_fit_are_all_named():
    plan, held = laid_out()
    sizes = [peak.bytes for peak in peaks(plan, held)]
    assert sizes == sorted(sizes, reverse=True)
    assert (
        fit(plan, held, sizes[1])
        .verdict()
        .endswith("optimizer state 5.859 KiB, FIFO buffers 4.102 KiB, gradient accumulators 3.906 KiB.")
    )
    assert fit(plan, held, sizes[1] - 1).verdict().endswith(" IPU 1 does not fit either.")
    assert fit(plan, held, 1).verdict().endswith(" IPUs 1 to 3 do not fit either.")
    assert not fit(plan, held, sizes[0]).too_large


def test_all_ipus_that_are_as_full_as_the_fullest_are_named():
    """Where the code of some of them is assumed and of others not, nothing is said of it."""
    plan, held = laid_out()
    one, *rest = peaks(plan, held)
    same = tuple(one._replace(ipu=peak.ipu) for peak in (one, *rest))
    first, *others = held.ipus
    assumed = replace(held, ipus=(replace(first, assumed_bytes=64), *others))
    full = f"{format_bytes(one.bytes)} of 1 MiB"
    begin = "Memory: every IPU fits; the fullest"
    assert Fit(plan, held, (one, *rest), 2**20).verdict() == f"{begin} is IPU 0 with {full}; code is not included."
    assert Fit(plan, held, same, 2**20).verdict() == f"{begin} are IPUs 0 to 3 with {full} each; code is not included."
    assert Fit(plan, held, (one, rest[0], *same[2:]), 2**20).verdict().startswith(f"{begin} are IPUs 0, 2 and 3 with ")
    assert Fit(plan, assumed, same, 2**20).verdict() == f"{begin} are IPUs 0 to 3 with {full} each."
