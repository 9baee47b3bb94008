"""How much one request may ask for: bounds on products of its values, each far beyond what a person waits for."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ipusim.base.units import format_bytes
from ipusim.hardware.system import System
from ipusim.machine.extent import MAX_SUM, most_cycles, most_disturbed_cycles, most_spans, tracks_of
from ipusim.machine.recurrence import executions_in_a_row
from ipusim.model.layers.layer import inner_sizes
from ipusim.model.layers.network import Network
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing.costs import Costs
from ipusim.pricing.price import price_plan
from ipusim.runs.assemble.schedule_options import micro_batches_of
from ipusim.runs.findings import Findings
from ipusim.runs.job import Job
from ipusim.runs.problems import MOST_NUMBER, KeyPath, Problem, RequestError
from ipusim.runs.request.layer_spec import PythonSpec
from ipusim.runs.request.schema import Options
from ipusim.timeline.timeline import Timeline

#: Numbers in all samples of synthetic data: 0.5 GB as float64.
MAX_SAMPLE_ELEMENTS: Final = 2**26
#: Inputs times outputs of the linear map behind synthetic data, which takes their cube in time.
MAX_DIRECTION_ELEMENTS: Final = 2**22
#: Trainable elements of a model, which are held four times over: weights, gradients, accumulators, slots.
MAX_PARAMETER_ELEMENTS: Final = 2**26
#: Elements of one micro-batch's activations in all layers, times the micro-batches that are alive at once.
MAX_ACTIVATION_ELEMENTS: Final = 2**28
#: Memory of the machine that simulates a run, all files included, in bytes.
MAX_RUN_BYTES: Final = 2 * 2**30
#: What a run takes of it, in bytes: for each span, of which every pass is one, and for each pass of a Plan.
#: Measured; a test measures it again.
SPAN_BYTES: Final = 500
PASS_BYTES: Final = 300
#: Executions, or session runs, that are simulated of a run which repeats itself from one to the next: the first one,
#: two that are alike, and the last one.
SIMULATED_EXECUTIONS: Final = 4
#: Cycles of one run, well within the 64 bits of a Timeline's columns.
MAX_CYCLES: Final = 2**62
_TIME_ALONE: Final = ": make it smaller, or simulate time alone with numerics: off"


def check_parameters(spec: PythonSpec, path: KeyPath, findings: Findings) -> bool:
    """Note a Python function's parameters that would not fit; tell whether they do."""
    elements = sum(math.prod(shape) for shape in spec.parameters.values())
    if elements > MAX_PARAMETER_ELEMENTS:
        text = f"expected at most {MAX_PARAMETER_ELEMENTS} trainable elements, got {elements}: the function is called "
        findings.add((*path, "parameters"), f"{text}with them to find what it costs; make them smaller")
    return elements <= MAX_PARAMETER_ELEMENTS


def check_network(network: Network, paths: list[KeyPath], alive: int, options: Options, findings: Findings) -> None:
    """Note weights and activations that would not fit this computer. Without arithmetic all do.

    ``paths`` are the keys of the layers, the loss last; ``alive`` micro-batches are held at once.
    """
    if options.numerics == "off":
        return
    elements = 0
    for named, shape, path in zip(network.layers, network.shapes, paths, strict=False):
        elements += sum(math.prod(parameter) for parameter in named.owned_shapes(shape).values())
        if elements > MAX_PARAMETER_ELEMENTS:
            text = f"expected a model of at most {MAX_PARAMETER_ELEMENTS} trainable elements, got {elements} up to here"
            findings.add(path, text + _TIME_ALONE)
            break
    batch = options.pipeline.micro_batch_size
    inner = [inner_sizes(named.layer, shape) for named, shape in zip(network.layers, network.shapes, strict=False)]
    sizes = sum(math.prod(shape) for shape in network.shapes) + sum(layer.saved for layer in inner)
    for layer, path in zip(inner, paths, strict=False):
        if batch * layer.passing > MAX_ACTIVATION_ELEMENTS:
            text = (
                f"expected a layer that makes at most {MAX_ACTIVATION_ELEMENTS} elements at once, "
                f"got {batch} samples x {layer.passing}"
            )
            findings.add(path, text + _TIME_ALONE)
    if batch * sizes * alive > MAX_ACTIVATION_ELEMENTS:
        text = (
            f"expected at most {MAX_ACTIVATION_ELEMENTS} activations at once, got {batch} samples x {sizes} elements "
            f"x {alive} micro-batches"
        )
        findings.add(("pipeline", "micro_batch_size"), text + _TIME_ALONE)


def laid_out_shape(shape: PlanShape, multiple: Callable[[PlanShape], int]) -> PlanShape | None:
    """Return the shape of the Plan that is laid out for a run of ``shape``, whose counts are of a schedule's multiple.

    It is ``shape`` where that Plan fits memory. Of larger ones it is the largest that does: what their runs record is
    estimated from it. None where there is no such count.
    """
    most = MAX_RUN_BYTES // (SPAN_BYTES + PASS_BYTES) * shape.micro_batches // shape.passes
    if shape.micro_batches <= most:
        return shape
    step = math.lcm(multiple(shape), shape.serialization)
    fewer = most // step * step
    return replace(shape, micro_batches=fewer) if fewer and shape.micro_batches % step == 0 else None


def refuse_passes(options: Options, shape: PlanShape, findings: Findings) -> None:
    """Note a run whose passes alone take too much memory, and of which no more can be estimated."""
    executions = options.pipeline.repeat_count * options.steps
    _check_size(options, shape, shape.passes * executions, "at least", findings)


def _check_size(
    options: Options, shape: PlanShape, spans: int, bound: str, findings: Findings, results: int = 0, part: str = ""
) -> None:
    """Note a run that would not fit, at its largest count.

    Args:
        options: what was asked for.
        shape: of one execution.
        spans: the number of spans of the run.
        bound: what that number is of what the run will record, in words: ``up to``, ``at least``.
        findings: where it is noted.
        results: bytes of results that the host keeps.
        part: what of it is simulated, in words; empty for all.
    """
    pipeline = options.pipeline
    counts: dict[KeyPath, int] = {
        ("pipeline", "gradient_accumulation_count"): pipeline.gradient_accumulation_count,
        ("pipeline", "batch_serialization_iterations"): pipeline.batch_serialization_iterations,
        ("pipeline", "repeat_count"): pipeline.repeat_count,
        ("steps",): options.steps,
    }
    if pipeline.batch_serialization_iterations == 1:
        del counts["pipeline", "batch_serialization_iterations"]
    size = spans * SPAN_BYTES + shape.passes * PASS_BYTES + results
    if size > MAX_RUN_BYTES:
        largest = max(counts, key=lambda path: counts[path])
        factors = " x ".join(f"{count} {path[-1]}" for path, count in counts.items())
        text = f"expected a run that takes at most {format_bytes(MAX_RUN_BYTES)} of memory here, got one of {bound} "
        and_results = f" and {format_bytes(results)} of results" if results else ""
        text += f"{format_bytes(size)}: {factors}{part} make {bound} {spans} spans of the trace{and_results}; "
        findings.add(largest, f"{text}make one of the {'three' if len(counts) == 3 else 'four'} smaller")


def simulated_executions(program: PipelineProgram, costs: Costs, executions: int) -> int:
    """Return how many executions are simulated at least, of so many that repeat themselves."""
    return min(SIMULATED_EXECUTIONS * executions_in_a_row(program, costs, executions), executions)


def _refuse_disturbances(system: System, extent: tuple[int, int, int], findings: Findings) -> None:
    """Note the first of a system's disturbances with which a run may last too long.

    ``extent`` are upper bounds of its cycles and spans without disturbances, and its executions.
    """

    def longest(count: int) -> int:
        return most_disturbed_cycles(replace(system, disturbances=system.disturbances[:count]), *extent)

    counts = range(1, len(system.disturbances) + 1)
    first = bisect_left(counts, True, key=lambda count: longest(count) > MAX_CYCLES)
    if first == len(counts):
        return
    cycles, key = longest(first + 1), system.disturbances[first].kind
    shown = f"{cycles}" if cycles < MOST_NUMBER else f"10^{int((cycles.bit_length() - 1) * math.log10(2))}"
    others = ", as those before it slow the run too" if first else ""
    text = f"expected a run of at most {MAX_CYCLES} cycles, got up to {shown} with this disturbance{others}"
    findings.add(("disturbances", first, key), f"{text}: make it smaller")


def summable(timeline: Timeline, system: System, costs: Costs) -> Timeline:
    """Return a Timeline whose figures, sums over its tracks, are within 64 bits.

    Args:
        timeline: of a run.
        system: the device.
        costs: of the run.

    Raises:
        RequestError: for a run that is too long for the number of its tracks.
    """
    tracks, cycles = tracks_of(system, costs), timeline.makespan_cycles
    if tracks * cycles > MAX_SUM:
        text = (
            f"expected a run of at most {MAX_SUM // tracks} cycles on {tracks} tracks of IPUs, links and host, whose "
            f"sum has 64 bits, got one of {cycles}: take fewer steps, less work or smaller disturbances"
        )
        raise RequestError([Problem(("pipeline",), text)])
    return timeline


def price_run(
    options: Options,
    plan: Plan,
    program: PipelineProgram,
    system: System,
    findings: Findings,
    element_bytes: int = 0,
    *,
    simulated: int | None = None,
) -> Costs:
    """Return the costs of a run; it must not last longer than a Timeline can say, and its record must fit.

    Of a run whose Plan would not fit, ``plan`` is that of fewer micro-batches (:func:`laid_out_shape`), and the spans
    are counted in proportion. That is at most as much more as the ramps and the update of that Plan are of it, and
    never less, so that a larger count never has a smaller estimate.

    ``element_bytes`` are those of each of the outfeed's elements that the host keeps. Of a run that
    is simulated in part, as it repeats itself, only the ``simulated`` micro-batches count.
    Raises RequestError with what was found so far and here.
    """
    with findings.at(("pipeline",)):
        costs = price_plan(plan, program, system)
        executions = program.repeat_count * options.steps
        micro_batches = micro_batches_of(options, plan.shape.segments)
        parts = -(-micro_batches // plan.shape.micro_batches)
        longest = most_cycles(plan, system, costs, executions) * parts
        if longest > MAX_CYCLES:
            text = f"expected a run of at most {MAX_CYCLES} cycles, got up to {longest}: take fewer steps or less work"
            findings.add(("pipeline",), text)
        elif system.disturbances:
            recorded = most_spans(plan, system, costs, executions) * parts
            _refuse_disturbances(system, (longest, recorded, executions), findings)
        part = ""
        if simulated is not None:
            whole = micro_batches, executions
            micro_batches, executions = simulated, simulated_executions(program, costs, executions)
            if whole != (micro_batches, executions):
                of = f"{executions} execution{'s' * (executions > 1)}"
                part = f", of which {micro_batches} micro-batches in {of} are simulated,"
        shape = replace(plan.shape, micro_batches=micro_batches)
        spans = -(-most_spans(plan, system, costs, executions) * micro_batches // plan.shape.micro_batches)
        # Each is kept as it comes, in one array with the others, and in the file.
        elements = replace(program, shape=shape).outfeed_elements
        results = 3 * element_bytes * elements.count_sent(executions) * system.replicas
        _check_size(options, shape, spans, "up to", findings, results, part)
    findings.raise_if_any()
    return costs


def most_session_runs(job: Job, result_bytes: int) -> int:
    """Return how many session runs of a Job, each with so many bytes of results, memory has room for; at least one."""
    spans = most_spans(job.plan, job.system, job.costs, job.program.repeat_count)
    return max(1, MAX_RUN_BYTES // (SPAN_BYTES * spans + result_bytes))
