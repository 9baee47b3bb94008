"""Times computed without events are the machine's: of passes, sends, weight updates and ends of all executions."""

import itertools
import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ipusim.analysis.executions import BETWEEN_KINDS, executions_of, on_ipus
from ipusim.app.scenario.load import load_job
from ipusim.base.errors import IpusimError, NotExactError
from ipusim.hardware.disturbances import Slower
from ipusim.machine.simulate import simulate
from ipusim.pipeline.composites import composites
from ipusim.pipeline.instructions import PASSES, Code
from ipusim.pipeline.plan import Sync
from ipusim.pricing.costs import Costs, Send
from ipusim.retiming import host_streams, precedence, stretches
from ipusim.retiming import retiming as retiming_module
from ipusim.retiming.exact_run import ExactRun
from ipusim.retiming.retiming import Retiming
from ipusim.retiming.shared_memory import SharedMemory
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.job import Job
from ipusim.runs.request.request import Request
from ipusim.timeline.kinds import KIND_OF_PASS, SpanKind, of_kinds
from ipusim.timeline.timeline import Timeline
from tests.effort import draws_everything, share
from tests.replay.requests import DRAWN, drawn_requests
from tests.schedules import FREE, mapping_of, multiple_of

#: Cases that are drawn with ``--every``, and by default.
CASES, FEWER = 10_000, 500
#: Variations of each drawn request.
VARIATIONS = 8
#: Passes of all executions of a case at most.
MOST_PASSES = 2_500
#: The reasons for which a case may be refused, and how many of a hundred may be.
REASONS = (
    "tensors that share a link",
    "tables on the host",
    "transfers from and to Streaming Memory",
    "infeeds that share the host's data rate",
    "host calls",
    "collectives beside a slower cable",
)
MOST_REFUSED = 10
CODES = {
    **{int(kind): number for number, kind in enumerate(KIND_OF_PASS)},
    int(SpanKind.SEND): int(Code.SEND),
    int(SpanKind.BLOCKING_SEND): int(Code.BLOCKING_SEND),
    int(SpanKind.WEIGHT_UPDATE): int(Code.UPDATE),
}
#: (execution, replica, IPU of the replica, code, stage, micro-batch) of a pass, an update or a send, with its begin and
#: end; a send's code comes with its begin, as a stage may send a micro-batch both ways. Ends of executions have no IPU.
Times = Counter[tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """A drawn run: its name, the Job with all of its micro-batches, and its executions."""

    name: str
    job: Job
    executions: int

    def retimed(self) -> Retiming:
        job = self.job
        between = job.between
        return Retiming.from_plan(
            job.plan, job.program, job.system, costs=job.costs, executions=self.executions, between=between
        )

    def simulated(self, costs: Costs | None = None) -> Timeline:
        job = self.job
        costs = job.costs if costs is None else costs
        return simulate(job.plan, job.program, job.system, costs=costs, executions=self.executions, between=job.between)


def machine_times(timeline: Timeline) -> Times:
    """The times that the machine has recorded."""
    info = timeline.info
    rows = np.flatnonzero(of_kinds(timeline.kind, [SpanKind(kind) for kind in CODES]))
    names = ("execution", "replica", "ipu", "kind", "stage", "micro_batch", "start", "end")
    columns = [getattr(timeline, name)[rows].tolist() for name in names]
    times: Times = Counter()
    for execution, replica, ipu, kind, stage, micro_batch, *both in zip(*columns, strict=True):
        times[execution, replica, ipu - replica * info.shards, CODES[kind], stage, micro_batch, *both] += 1
    inside = on_ipus(timeline) & ~of_kinds(timeline.kind, BETWEEN_KINDS)
    for execution in range(info.executions):
        for replica in range(info.replicas):
            own = inside & (timeline.execution == execution) & np.isin(timeline.replica, (replica, -1))
            times[execution, replica, int(timeline.end[own].max())] += 1
    return times


def retimed_times(case: Case) -> Times:
    """The times that are computed without events; raises NotExactError with the reason where they are not exact."""
    times: Times = Counter()
    table = case.job.plan.instructions.tolist()
    for execution, of in enumerate(case.retimed().times()):
        for replica in range(case.job.system.replicas):
            times[execution, replica, int(of.execution_end[replica])] += 1
            columns = of.start[:, replica].tolist(), of.end[:, replica].tolist()
            for (ipu, code, stage, micro_batch, _), *both in zip(table, *columns, strict=True):
                sends = code in (Code.SEND, Code.BLOCKING_SEND)
                if both[1] >= 0 and not (sends and both[0] == both[1]):  # the machine records no send without time
                    times[execution, replica, ipu, code, stage, micro_batch, *both] += 1
    return times


def cases(count: int, seed: int = 0, one_in: int = 1) -> Iterator[Case]:
    """Yield so many cases at least: variations of drawn requests of all sorts, under other disturbances and times.

    Each is drawn by its own name, so that a further schedule leaves the others as they are. Of a sample of them, one
    in so many, the others are not even assembled.
    """
    # A quarter of the variations cannot be, or are too long.
    asked = max(0, -(-count * 4 // (3 * VARIATIONS)) - len(FREE) + 8)
    parts = {"options": asked // 4, "orders": asked // 4, "tables": asked // 120, "cycles": asked - asked // 2}
    drawn = drawn_requests({**dict.fromkeys(DRAWN, 0), **parts})
    with TemporaryDirectory() as place:
        folder = Path(place)
        jobs = [*of_schedules(seed)]
        for request in drawn:
            for file, text in request.files.items():
                (folder / file).write_text(text)
            off = [] if request.name.startswith(("cycles", "orders")) else ["numerics=off"]
            jobs.append((request.name, load_job(folder / request.file, ["memory=report", *off])))
        jobs += of_moves(seed)
        for (request_name, job), variation in [*itertools.product(jobs, range(VARIATIONS))][::one_in]:
            try:
                name = f"{request_name} {variation}"
                case = varied(job, random.Random(f"{seed} {name}"), name)
            except IpusimError:  # as where sync modes lack something, or a stage of Python code has its own cycles
                continue
            if len(case.job.plan.table) * case.executions <= MOST_PASSES:
                yield case


def of_schedules(seed: int) -> Iterator[tuple[str, Job]]:
    """Yield a Job of every schedule that lets IPUs go on by themselves."""
    for name in FREE:
        rng = random.Random(f"{seed} {name}")
        mapping = mapping_of(name, 4)
        sizes = {"output_bytes": 1000, "gradient_bytes": 3000}
        stages = [{"forward": rng.randrange(100, 900), "backward": rng.randrange(100, 900), **sizes} for _ in mapping]
        named = [{"name": f"s{number}", **stage} for number, stage in enumerate(stages)]
        named[0].pop("gradient_bytes")
        named[-1].pop("output_bytes")
        count = multiple_of(name, len(mapping), 4) * rng.choice([1, 2])
        pipeline = {"schedule": name, "gradient_accumulation_count": max(8, count), "stages": named}
        machine, ipus = rng.choice([("m2000", 4), ("free", 4), ("free", 8)])
        data = {
            "system": {"name": machine, "auto_select_ipus": ipus, "sync_replicas_independently": ipus > 4},
            "pipeline": {**pipeline, "device_mapping": list(mapping)},
        }
        yield f"schedule {name}", assemble(Request.from_dict(data, name="drawn"))


def of_moves(seed: int) -> Iterator[tuple[str, Job]]:
    """Yield a Job of every schedule of the GPU world that moves activations in lock-step; beside passes is refused."""
    rng = random.Random(seed)
    for name, job in of_schedules(seed):
        changes: dict[str, Any] = {
            "pipeline.sync": "lock_step",
            "pipeline.overlapped": "max",
            "pipeline.offload_activations": {
                "to": rng.choice(["streaming_memory", "partner"]),
                "keep": rng.randrange(3),
            },
            "system.enable_remote_buffers": job.system.name != "free",
        }
        changes |= {
            f"pipeline.stages.{number}.stash_bytes": rng.randrange(1, 20_000) for number in range(job.plan.shape.stages)
        }
        yield f"moves {name}", assemble(job.request.replace(changes))


def varied(job: Job, rng: random.Random, name: str) -> Case:
    """A run like a Job's with other disturbances, stages, feeds and executions."""
    data = job.request.to_dict()
    changes: dict[str, Any] = {"disturbances": disturbances(rng, job)}
    pipeline = data["pipeline"]
    if pipeline.get("offload_activations") and not name.startswith("moves"):  # beside passes they would be refused
        changes["pipeline.offload_activations"] = pipeline["offload_activations"] = None
    offloads = [key for key in pipeline if key.startswith("offload_") and pipeline[key]]
    if pipeline.get("sync") == "point_to_point" and offloads:  # between which IPUs do not meet
        changes["pipeline.sync"] = "lock_step"
    elif not offloads and not name.startswith("options"):
        changes["pipeline.sync"] = rng.choice([*Sync])
    if any(composites(job.plan)):
        changes["pipeline.overlapped"] = rng.choice(["sum", "max", 700])
    for number, stage in enumerate(pipeline.get("stages", ())):
        if isinstance(stage, dict) and isinstance(stage.get("forward"), int) and rng.random() < 0.7:
            changes[f"pipeline.stages.{number}.forward"] = rng.choice(
                [0, 1, stage["forward"], 3 * stage["forward"] + 7]
            )
    if rng.random() < 0.4:
        changes["infeed.prefetch_depth"] = rng.choice([1, 2, 5])
    if rng.random() < 0.3 and job.system.name != "free":
        rate = rng.choice(["1 MB/s", "20 MB/s", "1 GB/s"])
        changes |= {"system.host.host_fill": rate, "system.host.host_drain": rate}
    varied_job = assemble(job.request.replace(changes)).whole
    return Case(f"{name} {changes}", varied_job, rng.choice([1, 1, 2, 3]) * varied_job.program.repeat_count)


def disturbances(rng: random.Random, job: Job) -> list[dict[str, Any]]:
    """Disturbances that last for the whole run, some of which change nothing."""
    ipus, cables = job.system.count, [(ipu, peer) for ipu, ends in job.system.cables.items() for peer in ends]
    chosen: list[dict[str, Any]] = []
    if rng.random() < 0.3:
        chosen.append({"jitter": rng.choice([0, 0.02, 0.3]), "seed": rng.randrange(100)})
    if rng.random() < 0.2:
        chosen.append({"jitter": 0.1, "seed": rng.randrange(100), "ipu": rng.randrange(ipus)})
    if rng.random() < 0.3:
        chosen.append({"ipu": rng.randrange(ipus), "slower": rng.choice([1, 1.25, 3])})
    if cables and job.system.replicas == len(job.plan.shape.copies) == 1 and rng.random() < 0.2:
        chosen.append({"link": rng.choice(cables), "slower": rng.choice([1, 1.3, 3])})
    return chosen


@cache
def simulated_cases() -> list[tuple[Case, Times]]:
    """The drawn cases with the machine's times; of 10,000 the machine's times alone are no list to keep."""
    return [(case, machine_times(case.simulated())) for case in cases(FEWER)]


def test_all_times_are_the_machines() -> None:
    """To the cycle; at most one case in ten is refused, each for a reason of the domain."""
    refused: Counter[str] = Counter()
    modes: Counter[tuple[bool, bool, bool]] = Counter()
    every = (
        ((case, machine_times(case.simulated())) for case in cases(CASES)) if draws_everything() else simulated_cases()
    )
    schedules: set[str] = set()
    seen = 0
    for case, right in every:
        seen += 1
        try:
            times = retimed_times(case)
        except NotExactError as error:
            refused[str(error)] += 1
            continue
        assert times == right, (case.name, sorted((right - times).items())[:2], sorted((times - right).items())[:2])
        schedules.add(case.job.program.schedule)
        modes[case.job.plan.sync.has_time_steps, case.job.system.replicas > 1, bool(case.job.system.disturbances)] += 1
    assert seen >= (CASES if draws_everything() else FEWER)
    assert all(reason.startswith(REASONS) for reason in refused), refused
    assert 100 * refused.total() <= MOST_REFUSED * seen, (refused, seen)
    assert len(modes) == 8, modes
    assert schedules >= {*FREE}, {*FREE} - schedules


def with_durations(case: Case, durations: npt.NDArray[np.int64]) -> int:
    """The end of the last execution where passes take other cycles, of shape (kinds, stages)."""
    passes = {(kind, stage): int(durations[kind, stage]) for kind, stage in case.job.costs.passes}
    return executions_of(case.simulated(replace(case.job.costs, passes=passes)))[-1].end


def with_copies(case: Case, by: int) -> int:
    """The end of the last execution where merged copies and tensors that take time take so many cycles more."""
    costs = case.job.costs
    sends = {of: send._replace(**longer(send, by)) for of, send in costs.sends.items()}
    by_group = tuple(
        tuple(
            replace(copy, fixed=copy.fixed._replace(sync_cycles=copy.fixed.sync_cycles + by))
            if copy.total_cycles
            else copy
            for copy in copies
        )
        for copies in costs.copies.by_group
    )
    copies = replace(costs.copies, by_group=by_group)
    return executions_of(case.simulated(replace(costs, sends=sends, copies=copies)))[-1].end


def longer(send: Send, by: int) -> dict[str, int]:
    """The field of a tensor's way that is longer, of those that take time: on its links, or else before."""
    name = "cycles" if send.links and send.cycles else "lead_cycles"
    return {name: getattr(send, name) + by if send.lead_cycles or send.cycles else 0}


def priced(case: Case) -> npt.NDArray[np.int64]:
    """Cycles of each pass, shape (kinds, stages)."""
    cycles = np.zeros((PASSES, case.job.plan.shape.stages), np.int64)
    for of, each in case.job.costs.passes.items():
        cycles[of] = each
    return cycles


def retimings(count: int) -> Iterator[tuple[Case, Retiming]]:
    """Yield so many drawn cases whose times may be exact, of all sorts."""
    found = 0
    drawn = simulated_cases()
    for case, _ in drawn[:: max(1, len(drawn) // (2 * count))]:
        try:
            retiming = case.retimed()
        except NotExactError:
            continue
        if found < count:
            found += 1
            yield case, retiming


def test_several_sets_of_durations_are_as_many_simulations() -> None:
    """Of feeds, composite passes and disturbances too; sets that are said not to be exact are none."""
    rng = np.random.default_rng(0)
    exact = 0
    for case, retiming in retimings(5 * share(200)):
        cycles = priced(case)
        sets = np.stack([cycles, *(cycles * rng.integers(50, 200, cycles.shape) // 100 for _ in range(3))])
        lengths, sure = retiming.executions(sets)
        right = [with_durations(case, each) for each in sets[sure]]
        assert lengths[sure].tolist() == right, case.name
        exact += int(sure.sum())
    assert exact


@pytest.mark.parametrize("even", [False, True])
def test_growth_is_the_difference_of_two_simulations(even: bool) -> None:
    """Of a pass of a stage that takes a cycle more, and a cycle less; in even pipelines many paths tie."""
    rng, compared = random.Random(1), 0
    for case, _ in retimings(share(100)):
        cycles = priced(case)
        if even:
            cycles[:] = np.array([1000, 2000, 1000, 1000, 1000])[:, np.newaxis]
        passes = {(kind, stage): int(cycles[kind, stage]) for kind, stage in case.job.costs.passes}
        job = replace(case.job, costs=replace(case.job.costs, passes=passes))
        own = replace(case, job=job)
        try:
            growth = own.retimed().growth()
        except NotExactError:
            continue
        length, sure = with_durations(own, cycles), growth.passes_exact
        for place, by in enumerate((1, -1)):
            # Slower IPUs take more than a cycle longer for their part of a copy.
            if growth.copies_exact[place] and not any(isinstance(of, Slower) for of in job.system.disturbances):
                assert by * growth.copies[place] == with_copies(own, by) - length, own.name
        for kind, stage in rng.sample(sorted(passes), min(4, len(passes))):
            step = np.zeros_like(cycles)
            step[kind, stage] = 1
            if sure[0, kind, stage]:
                assert growth.passes[0, kind, stage] == with_durations(own, cycles + step) - length, (
                    own.name,
                    kind,
                    stage,
                )
            if sure[1, kind, stage]:
                less = with_durations(own, np.maximum(cycles - step, 0))
                assert growth.passes[1, kind, stage] == length - less, (own.name, kind, stage)
            compared += bool(sure[:, kind, stage].all() and growth.copies_exact.all() and growth.copies.all())
    assert compared


def _deeper(run: ExactRun, columns: int) -> host_streams.Streams:
    streams = host_streams.host_streams(run, columns)
    for stream in streams.values():
        stream.depth += 1
        stream.places = deque([*stream.places, stream.places[0]], stream.depth)
    return streams


#: Rules of the evaluator, each broken: (what has it, its name, in place of it).
MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "a lead dropped": (ExactRun, "send_cycles", lambda run, *way: (0, int(run.costs.sends[way].cycles))),
    "a feed's buffer deeper by one": (retiming_module, "host_streams", _deeper),
    "an end of all replicas": (ExactRun, "replicas_meet", True),
    "a copy without its post-copy": (
        ExactRun,
        "copy_cycles",
        lambda _, copy, ipus: int(copy.total_cycles) - int(copy.fixed.post_copy_cycles),
    ),
    "jitter of the first execution": (
        ExactRun,
        "cycles",
        lambda run, durations, _, seeds=None, right=ExactRun.cycles: right(run, durations, 0, seeds),
    ),
    "composite passes that take their sum": (
        ExactRun,
        "_parts",
        lambda _, durations, slot: np.stack([durations[:, kind, stage] for kind, stage in slot]),
    ),
    "feeds without copies in lock-step": (stretches.Execution, "move_feed", lambda _, code, shard, now: now),
    "meetings of replicas without time": (stretches, "meeting_cycles", lambda run, row: 0),
    "slower IPUs as fast as others": (ExactRun, "slowed_cycles", lambda run, cycles, ipus: int(cycles)),
    "slower cables as fast as others": (ExactRun, "link_cycles", lambda run, send: int(send.cycles)),
    "transfers that share nothing": (
        SharedMemory,
        "_share",
        lambda memory, _: memory._shares[1],
    ),
    "hosts without time between executions": (ExactRun, "cycles_before", lambda run, execution: 0),
    "tensors that share links freely": (
        precedence.Loads,
        "are_apart",
        lambda loads, left, _: (np.ones(left.shape[2], bool), loads),
    ),
    "tensors that share links from the first byte on, each as fast as alone": (
        ExactRun,
        "joint_link_cycles",
        lambda run, sends: [int(send.cycles) for send in sends],
    ),
    "sums of gradients without time": (stretches.Ending, "_cycles", lambda ending, meeting: 0),
}


def test_each_rule_is_seen() -> None:
    """With any of them broken the times of a drawn case are others; one test, as workers draw for each of theirs."""

    def is_seen(case: Case, right: Times) -> bool:
        try:
            return retimed_times(case) != right
        except NotExactError:
            return False

    for mutation, broken in MUTATIONS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*broken)
            assert any(itertools.starmap(is_seen, simulated_cases())), mutation
