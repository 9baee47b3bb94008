"""Limit a request's size, so that its run fits in this computer's memory and sums of cycles in 64 bits.

A span is a recorded interval of a run's Timeline, such as a pass or a copy.
"""

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
from ipusim.runs.problems import NUMBER_LIMIT, KeyPath, Problem, RequestError
from ipusim.runs.request.layer_spec import PythonSpec
from ipusim.runs.request.schema import Options
from ipusim.timeline.timeline import Timeline

#: Maximum count of numbers in all samples of synthetic data: 0.5 GB as float64.
MAX_SAMPLE_ELEMENTS: Final = 2**26
#: Maximum size x outputs of the matrix behind synthetic data. For classes, its QR decomposition takes time in
#: proportion to size x outputs^2.
MAX_DIRECTION_ELEMENTS: Final = 2**22
#: Maximum number of trainable elements of a model. Each is stored four times: as weight, gradient, accumulator, and
#: optimizer state.
MAX_PARAMETER_ELEMENTS: Final = 2**26
#: Maximum number of activation elements of all layers for a micro-batch, times the live micro-batches.
MAX_ACTIVATION_ELEMENTS: Final = 2**28
#: Memory limit of a simulation, including the contents of all files, in bytes.
MAX_RUN_BYTES: Final = 2 * 2**30
#: Measured memory of a simulated span, in bytes; a test measures it again.
SPAN_BYTES: Final = 500
#: Measured memory of a pass in a Plan, in bytes; a test measures it again.
PASS_BYTES: Final = 300
#: Number of executions (or session runs) to simulate if all between the first and the last are equal: the first, two
#: equal ones, and the last.
SIMULATED_EXECUTIONS: Final = 4
#: Maximum number of cycles of a run, well within the 64 bits of a Timeline's columns.
MAX_CYCLES: Final = 2**62
#: Advice at the end of messages about the size of a model.
_MAKE_SMALLER: Final = ": make it smaller, or simulate only time with numerics: off"


def check_parameters(spec: PythonSpec, path: KeyPath, findings: Findings) -> bool:
    """Return whether a Python function's parameters fit in memory; otherwise record a problem."""
    elements = sum(math.prod(shape) for shape in spec.parameters.values())
    if elements > MAX_PARAMETER_ELEMENTS:
        text = f"expected at most {MAX_PARAMETER_ELEMENTS} trainable elements, got {elements}: the function is called "
        findings.add((*path, "parameters"), f"{text}with the elements to find its cost; use fewer elements")
    return elements <= MAX_PARAMETER_ELEMENTS


def check_network(network: Network, paths: list[KeyPath], alive: int, options: Options, findings: Findings) -> None:
    """Record weights and activations exceeding this computer's memory, if the request has arithmetic.

    Args:
        network: layers with their shapes.
        paths: keys of the layers, the loss last.
        alive: number of simultaneously live micro-batches.
        options: options of the request.
        findings: recorder of problems.
    """
    if options.numerics == "off":
        return
    elements = 0
    for entry, shape, path in zip(network.layers, network.shapes, paths, strict=False):
        elements += sum(math.prod(parameter) for parameter in entry.owned_shapes(shape).values())
        if elements > MAX_PARAMETER_ELEMENTS:
            text = (
                f"expected a model of at most {MAX_PARAMETER_ELEMENTS} trainable elements, got {elements} up to "
                "this layer"
            )
            findings.add(path, text + _MAKE_SMALLER)
            break
    batch = options.pipeline.micro_batch_size
    layer_sizes = [
        inner_sizes(entry.layer, shape) for entry, shape in zip(network.layers, network.shapes, strict=False)
    ]
    sizes = sum(math.prod(shape) for shape in network.shapes) + sum(layer.saved_elements for layer in layer_sizes)
    for layer, path in zip(layer_sizes, paths, strict=False):
        if batch * layer.passing > MAX_ACTIVATION_ELEMENTS:
            text = (
                f"expected a layer with at most {MAX_ACTIVATION_ELEMENTS} output elements at once, got {batch} "
                f"samples x {layer.passing}"
            )
            findings.add(path, text + _MAKE_SMALLER)
    if batch * sizes * alive > MAX_ACTIVATION_ELEMENTS:
        text = (
            f"expected at most {MAX_ACTIVATION_ELEMENTS} activations at once, got {batch} samples x {sizes} elements "
            f"x {alive} micro-batches"
        )
        findings.add(("pipeline", "micro_batch_size"), text + _MAKE_SMALLER)


def laid_out_shape(shape: PlanShape, multiple: Callable[[PlanShape], int]) -> PlanShape | None:
    """Return the shape of the Plan laid out for a run of ``shape``.

    A Plan that fits in memory keeps ``shape``. For a larger Plan, the result is the largest shape within memory; from
    its Plan, :func:`price_run` estimates the memory of all recorded spans.

    Args:
        shape: shape of the run.
        multiple: returns the number of which every legal count of the schedule is a multiple.

    Returns:
        The shape; None if no smaller count is legal.
    """
    most_count = MAX_RUN_BYTES // (SPAN_BYTES + PASS_BYTES) * shape.micro_batches // shape.passes
    if shape.micro_batches <= most_count:
        return shape
    step = math.lcm(multiple(shape), shape.serialization)
    fewer_count = most_count // step * step
    return replace(shape, micro_batches=fewer_count) if fewer_count and shape.micro_batches % step == 0 else None


def refuse_passes(options: Options, shape: PlanShape, findings: Findings) -> None:
    """Record a problem if the passes of a run alone exceed memory."""
    executions = options.pipeline.repeat_count * options.steps
    _check_size(options, shape, shape.passes * executions, "at least", findings)


def _check_size(
    options: Options, shape: PlanShape, spans: int, phrase: str, findings: Findings, results: int = 0, part: str = ""
) -> None:
    """Record a run that exceeds memory, as a problem of the option with the largest count.

    Args:
        options: options of the request.
        shape: shape of one execution.
        spans: total number of spans.
        phrase: words before the number of spans: ``up to`` or ``at least``.
        findings: recorder of problems.
        results: bytes of results kept by the host.
        part: words for the simulated part of the run; empty if the whole run is simulated.
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
        text = f"expected a run that takes at most {format_bytes(MAX_RUN_BYTES)} of memory here, got one of {phrase} "
        and_results = f" and {format_bytes(results)} of results" if results else ""
        text += f"{format_bytes(size)}: {factors}{part} make {phrase} {spans} spans of the trace{and_results}; "
        findings.add(largest, f"{text}make one of the {'three' if len(counts) == 3 else 'four'} smaller")


def simulated_executions(program: PipelineProgram, costs: Costs, executions: int) -> int:
    """Return the minimum number of simulated executions of a repeating run."""
    return min(SIMULATED_EXECUTIONS * executions_in_a_row(program, costs, executions), executions)


def _refuse_disturbances(system: System, extent: tuple[int, int, int], findings: Findings) -> None:
    """Record the first of a system's disturbances that may make a run too long.

    ``extent`` holds upper bounds of the run's cycles and spans without disturbances, and its number of executions.
    """

    def longest(count: int) -> int:
        return most_disturbed_cycles(replace(system, disturbances=system.disturbances[:count]), *extent)

    counts = range(1, len(system.disturbances) + 1)
    first = bisect_left(counts, True, key=lambda count: longest(count) > MAX_CYCLES)
    if first == len(counts):
        return
    cycles, key = longest(first + 1), system.disturbances[first].kind
    number = f"{cycles}" if cycles < NUMBER_LIMIT else f"10^{int((cycles.bit_length() - 1) * math.log10(2))}"
    reason = ", because the disturbances before slow the run too" if first else ""
    text = f"expected a run of at most {MAX_CYCLES} cycles, got up to {number} with this disturbance{reason}"
    findings.add(("disturbances", first, key), f"{text}: make it smaller")


def check_sums(timeline: Timeline, system: System, costs: Costs) -> Timeline:
    """Return a run's Timeline after checking that sums over its tracks fit in 64 bits.

    Args:
        timeline: Timeline of a run.
        system: device.
        costs: costs of the run.

    Raises:
        RequestError: if the run is too long for the number of its tracks.
    """
    tracks, cycles = tracks_of(system, costs), timeline.makespan_cycles
    if tracks * cycles > MAX_SUM:
        text = (
            f"expected a run of at most {MAX_SUM // tracks} cycles on {tracks} tracks of IPUs, links and host, "
            f"because sums over tracks have 64 bits, got a run of {cycles}: use fewer steps, less work or smaller "
            "disturbances"
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
    short_count: int | None = None,
) -> Costs:
    """Return a run's costs after checking its length and the memory of its recorded spans.

    For a run with a Plan too large for memory, ``plan`` has fewer micro-batches (:func:`laid_out_shape`), and spans are
    scaled up in proportion. The estimate is never too low. It is too high by at most the share of fill, drain and
    weight update in that Plan. Larger counts never have lower estimates.

    Args:
        options: options of the request.
        plan: plan of the run, or of fewer micro-batches.
        program: pipeline of the run.
        system: device.
        findings: recorder of problems.
        element_bytes: bytes that the host keeps of each outfeed element.
        short_count: number of simulated micro-batches of a repeating run; None if all are simulated.

    Raises:
        RequestError: if problems are recorded; the error lists all problems.
    """
    with findings.collect(("pipeline",)):
        costs = price_plan(plan, program, system)
        executions = program.repeat_count * options.steps
        micro_batches = micro_batches_of(options, plan.shape.segments)
        parts = -(-micro_batches // plan.shape.micro_batches)
        longest = most_cycles(plan, system, costs, executions) * parts
        if longest > MAX_CYCLES:
            text = f"expected a run of at most {MAX_CYCLES} cycles, got up to {longest}: use fewer steps or less work"
            findings.add(("pipeline",), text)
        elif system.disturbances:
            most_count = most_spans(plan, system, costs, executions) * parts
            _refuse_disturbances(system, (longest, most_count, executions), findings)
        part = ""
        if short_count is not None:
            all_counts = micro_batches, executions
            micro_batches, executions = short_count, simulated_executions(program, costs, executions)
            if all_counts != (micro_batches, executions):
                runs = f"{executions} execution{'s' * (executions > 1)}"
                part = f", of which {micro_batches} micro-batches in {runs} are simulated,"
        shape = replace(plan.shape, micro_batches=micro_batches)
        spans = -(-most_spans(plan, system, costs, executions) * micro_batches // plan.shape.micro_batches)
        # Each element exists on arrival, in a joint array, and in the file.
        elements = replace(program, shape=shape).outfeed_elements
        results = 3 * element_bytes * elements.count_sent(executions) * system.replicas
        _check_size(options, shape, spans, "up to", findings, results, part)
    findings.raise_if_any()
    return costs


def refuse_large_whole(job: Job, options: Options, element_bytes: int, findings: Findings) -> None:
    """Refuse a whole run that exceeds memory, with the problem of :func:`price_run`, but without making its Plan.

    In point-to-point, spans grow by the same number per period, so two short Plans give the number of the whole run.

    Args:
        job: Job with a Plan of fewer micro-batches.
        options: options of the whole run.
        element_bytes: bytes that the host keeps of each outfeed element.
        findings: recorder of problems.

    Raises:
        RequestError: with the problem.
    """
    shape, laid_out_count = job.program.shape, job.plan.shape.micro_batches
    is_linear = not (
        job.plan.sync.has_time_steps or job.system.disturbances or element_bytes or job.schedule.period is None
    )
    if not is_linear or laid_out_shape(shape, job.schedule.multiple) != shape:
        return

    def spans_of(part: Job) -> int:
        return most_spans(part.plan, part.system, part.costs, job.executions)

    parts = -(-shape.micro_batches // laid_out_count)  # rounded up, so that the estimates are upper bounds
    is_too_large = parts * spans_of(job) * SPAN_BYTES + shape.passes * PASS_BYTES > MAX_RUN_BYTES
    if is_too_large and parts * most_cycles(job.plan, job.system, job.costs, job.executions) <= MAX_CYCLES:
        _check_size(options, shape, job.of_whole(spans_of), "up to", findings)
        findings.raise_if_any()


def most_session_runs(job: Job, result_bytes: int) -> int:
    """Return the number of session runs whose spans and results fit in memory, at least 1.

    Args:
        job: job of a session run.
        result_bytes: bytes of a session run's results.
    """
    spans = most_spans(job.plan, job.system, job.costs, job.program.repeat_count)
    return max(1, MAX_RUN_BYTES // (SPAN_BYTES * spans + result_bytes))
