"""Check whether a Job's program fits its machine, and suggest an option to change if not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ipusim.analysis.fit import Fit, fit, remote_verdict
from ipusim.analysis.fits import Fits
from ipusim.base.errors import OutOfMemoryError
from ipusim.hardware.system import ON_POPART, System
from ipusim.pipeline.footprint import footprint
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.code import estimated_code
from ipusim.runs.job import Job
from ipusim.runs.problems import KeyPath, Problem, RequestError, dotted
from ipusim.runs.request.schema import Options
from ipusim.schedules import registry

#: Option with the number of samples in a micro-batch.
_MICRO_BATCH: Final[KeyPath] = ("pipeline", "micro_batch_size")
#: Option with the place of the optimizer's state.
_STATE: Final[KeyPath] = ("pipeline", "offload_weight_update_variables")
_USE_SMALLER_BATCH: Final = "make micro_batch_size smaller"
_USE_MORE_STAGES: Final = "cut the model into more stages on more IPUs"


class RequestMemoryError(RequestError, OutOfMemoryError):
    """Request whose program exceeds memory; the problem names the cause.

    Args:
        problem: option to change first, with advice.

    Attributes:
        job: Job that exceeds memory.
        remedy: advice in the problem's text.

    Example:
        >>> from ipusim.api import Request, RequestMemoryError, assemble
        >>> layers = [{"name": "last", "type": "dense", "units": 3}, {"name": "loss", "type": "softmax_cross_entropy"}]
        >>> data = {"type": "synthetic", "shape": [4], "classes": 3, "samples": 8}
        >>> pipeline = {"splits": ["loss"], "gradient_accumulation_count": 2}
        >>> options = {"system": {"name": "m2000"}, "data": data, "model": {"layers": layers}, "code_bytes": "900 MiB"}
        >>> try:
        ...     assemble(Request.from_dict(options | {"pipeline": pipeline}))
        ... except RequestMemoryError as error:
        ...     error.problems[0].path, error.job.memory.out_of_memory.split(",")[0]
        (('code_bytes',), 'Out of memory on IPU 0: 900.8 MiB in pass F0.0')
    """

    def __init__(self, problem: Problem, job: Job, remedy: str = "") -> None:
        """Store the problem, the Job and the remedy."""
        super().__init__([problem])
        self.job = job
        self.remedy = remedy


def memory_of(options: Options, system: System, program: PipelineProgram, plan: Plan) -> Fit:
    """Return the memory of the IPUs under ``plan`` with their limits, without refusing programs that do not fit."""
    estimated = estimated_code(plan, program, system) if options.code_bytes is None else {}
    program_footprint = footprint(plan, program, options.code_bytes or 0, estimated)
    has_limits = _memory_option(options, system) != "off"
    return fit(
        plan,
        program_footprint,
        system.ipu.sram_bytes if has_limits else None,
        is_known=program.describes_memory,
        streaming=remote_verdict(program_footprint, system) if has_limits else "",
    )


def _memory_option(options: Options, system: System) -> str:
    return options.memory or ("off" if system.free else "error")


def check_memory(job: Job) -> None:
    """Raise RequestMemoryError for a program that exceeds its IPUs' memory or the Streaming Memory.

    The error names the option to change first, and a remedy. A request for a report raises no error.
    """
    if _memory_option(job.request.options, job.system) != "error":
        return
    memory = job.memory
    if memory.too_large:
        path, remedy = _remedy(job, memory)
        _refuse(job, path, memory.out_of_memory, remedy)
    if memory.streaming:
        remedy = "Offload less, or cut the model into more stages on more machines."
        _refuse(job, ("system", "streaming_memory", "capacity"), memory.streaming, remedy)


def _refuse(job: Job, path: KeyPath, problem: str, remedy: str) -> None:
    hint = "" if job.request.functions is not None else "; `ipusim check` lists the memory and time of each change"
    text = f"{problem} {remedy} With memory: report the program runs anyway{hint}."
    raise RequestMemoryError(Problem(path, text), job, remedy)


def _remedy(job: Job, memory: Fit) -> tuple[KeyPath, str]:
    """Return a remedy for the fullest IPU's largest holder (kind of content): an option and a sentence."""
    shape = job.program.shape
    if _fits_offloaded(job):
        return _STATE, (
            f"{job.system.framework} keeps the optimizer's state on the IPUs by default, and the state fits in "
            f"Streaming Memory: set {dotted(_STATE)} to true."
        )
    if feed := _too_large_queue(job, memory):
        return _feed_remedy(job, feed)
    if memory.largest == Holder.FIFOS and not (shape.recompute or shape.recompute_inline):
        return _shorter_fifos(job)
    if memory.largest == Holder.LIVE and memory.too_large[0].op is None:  # tensors loaded by a weight update
        return _spread_remedy(job, Holder.PARAMETERS)
    return _spread_remedy(job, memory.largest)


def _fits_offloaded(job: Job) -> bool:
    """Return whether the program fits if the optimizer's state moves to Streaming Memory.

    False for a request that sets the place of the state, and for compilers that offload the state by default.
    """
    is_default_place = job.system.framework in ON_POPART and not job.request.is_set(_STATE)
    if not is_default_place or job.system.streaming is None or job.program.offload.variables_on_host:
        return False
    offload = replace(job.program.offload, weight_update_variables=True)
    program = replace(job.program, offload=offload)
    return memory_of(job.request.options, job.system, program, job.plan).fits is not Fits.NO


def _shorter_fifos(job: Job) -> tuple[KeyPath, str]:
    """Return the first remedy's option, and a sentence with all remedies for FIFOs under the schedule."""
    remedies: list[tuple[KeyPath, str]] = []
    if job.schedule.recomputation_modes:
        remedies.append((("pipeline", "allow_recompute"), "set allow_recompute"))
    if schedule := registry.shallower(job.schedule, job.program.shape):
        remedies.append((("pipeline", "schedule"), f"use the schedule {schedule} with half the FIFO depth"))
    last_remedy = (
        (_MICRO_BATCH, _USE_SMALLER_BATCH)
        if _can_be_smaller(job)
        else (("pipeline", "device_mapping"), _USE_MORE_STAGES)
    )
    text = ", ".join(words for _, words in remedies) + ", or " * bool(remedies) + last_remedy[1]
    return [*remedies, last_remedy][0][0], f"{text[0].upper()}{text[1:]}."


def _can_be_smaller(job: Job) -> bool:
    """Return whether a smaller micro-batch exists and saves memory.

    Stages known only by their cost save no memory.
    """
    counts_samples = job.workload is not None or any(not isinstance(stage.forward, int) for stage in job.program.stages)
    return counts_samples and job.program.micro_batch_size > 1


def _spread_remedy(job: Job, holder: Holder) -> tuple[KeyPath, str]:
    """Return the remedy for a holder that can also be spread over more IPUs by more stages."""
    match holder:
        case Holder.FIFOS | Holder.LIVE | Holder.COPIES if _can_be_smaller(job):
            return _MICRO_BATCH, f"{_USE_SMALLER_BATCH.capitalize()}, or {_USE_MORE_STAGES}."
        case Holder.CODE:
            return ("code_bytes",), f"Use fewer code_bytes, or {_USE_MORE_STAGES}."
        case Holder.TEMPORARY:
            return ("system", "matmuls", "poplar_options"), (
                "Give products less memory, by availableMemoryProportion in system.matmuls.poplar_options or "
                f"system.convolutions.poplar_options, or {_USE_MORE_STAGES}."
            )
        case Holder.STATE:
            path, condition = _STATE, ""
            if job.system.streaming is None:
                path, condition = ("system", "enable_remote_buffers"), ", if the machine has Streaming Memory"
            return path, (
                f"Keep the optimizer's state in Streaming Memory with {dotted(path)}{condition}, or {_USE_MORE_STAGES}."
            )
        case _:
            return ("pipeline", "device_mapping"), (
                "Cut the model into more stages on more IPUs, or move layers to an IPU with room."
            )


def _too_large_queue(job: Job, memory: Fit) -> str | None:
    """Return the queue (infeed or outfeed) whose element exceeds memory; None if no queue has such an element.

    The element is in the queue's buffer, or stashed as the first stage's input. More stages do not help: the whole
    element arrives at one IPU, or leaves it.
    """
    program, fullest_peak = job.program, memory.too_large[0]
    shape = program.shape
    if memory.largest == Holder.STREAMS:
        sizes = {
            "infeed": program.infeed.element_bytes if fullest_peak.ipu in shape.ipus_of(0) else 0,
            "outfeed": program.outfeed.element_bytes if fullest_peak.ipu in shape.ipus_of(shape.stages - 1) else 0,
        }
        return max(sizes, key=lambda name: sizes[name])
    stages_on_ipu = [stage for stage in memory.footprint.stages if fullest_peak.ipu in stage.ipus]
    first = memory.footprint.stages[0]
    if memory.largest == Holder.FIFOS and program.shape.recomputes(0) and first in stages_on_ipu:
        return "infeed" if first.fifo_bytes == max(stage.fifo_bytes for stage in stages_on_ipu) else None
    return None


def _feed_remedy(job: Job, feed: str) -> tuple[KeyPath, str]:
    path: KeyPath = (feed, "element_bytes")
    if job.request.is_set(path):
        return path, f"Make {feed}.element_bytes smaller: a whole element of the {feed} lies on this IPU."
    option: KeyPath = _MICRO_BATCH if _can_be_smaller(job) else ("data",)
    advice = f"{_USE_SMALLER_BATCH}, or the samples" if _can_be_smaller(job) else "make the samples smaller"
    return option, (
        f"{advice[0].upper()}{advice[1:]}: a whole element of the {feed} lies on this IPU, however many stages there "
        "are."
    )
