"""Whether an Experiment's program fits its machine, and which value of the scenario to change where it does not."""

from __future__ import annotations

from typing import Final

from ipusim.analysis.fit import Fit, remote_verdict
from ipusim.errors import OutOfMemoryError
from ipusim.pipeline.holders import Holder
from ipusim.scenario.experiment import Experiment
from ipusim.scenario.problems import KeyPath, Problem, ScenarioError, dotted

_MICRO_BATCH: Final[KeyPath] = ("pipeline", "micro_batch_size")
_MORE_STAGES: Final = "cut the model into more stages on more IPUs"


class ScenarioMemoryError(ScenarioError, OutOfMemoryError):
    """A scenario whose program needs more memory than there is; the problem stands at what makes it too large."""


def check_memory(experiment: Experiment, found: Fit) -> None:
    """Refuse a program that does not fit the memory of its IPUs, or the Streaming Memory beside them.

    Raises ScenarioMemoryError with the place of the value to change first, and a remedy.
    """
    if found.too_large:
        path, remedy = _remedy(experiment, found)
        _refuse(experiment, path, f"{found.verdict()} {remedy}")
    if text := remote_verdict(found.footprint, experiment.system):
        remedy = "Offload less, or cut the model into more stages on more machines."
        _refuse(experiment, ("system", "streaming_memory", "capacity"), f"{text} {remedy}")


def _refuse(experiment: Experiment, path: KeyPath, text: str) -> None:
    text += " With memory: report it is run all the same."
    raise ScenarioMemoryError([Problem(experiment.source.place(path), dotted(path), text)])


def _remedy(experiment: Experiment, found: Fit) -> tuple[KeyPath, str]:
    """Return what makes the largest holder of the fullest IPU smaller: the value to change first, and a sentence."""
    shape = experiment.program.shape
    if feed := _feed(experiment, found):
        return _feed_remedy(experiment, feed)
    if found.largest == Holder.FIFOS and not (shape.recompute or shape.recompute_inline):
        grouped = found.plan.schedule == "grouped"
        shallower = ", take the schedule interleaved, whose FIFOs are half as deep" if grouped else ""
        return ("pipeline", "allow_recompute"), f"Set allow_recompute{shallower}, or make micro_batch_size smaller."
    if found.largest == Holder.LIVE and found.too_large[0].op is None:  # what a weight update has loaded
        return _elsewhere(experiment, Holder.PARAMETERS)
    return _elsewhere(experiment, found.largest)


def _elsewhere(experiment: Experiment, holder: Holder) -> tuple[KeyPath, str]:
    """Return the remedy for holders that more stages on more IPUs would spread as well."""
    match holder:
        case Holder.FIFOS | Holder.LIVE | Holder.COPIES:
            return _MICRO_BATCH, f"Make micro_batch_size smaller, or {_MORE_STAGES}."
        case Holder.CODE:
            return ("code_bytes",), f"Take less for code_bytes, or {_MORE_STAGES}."
        case Holder.STATE:
            key, where = "pipeline.offload_weight_update_variables", ""
            if experiment.system.streaming is None:
                key, where = "system.enable_remote_buffers", ", where the machine has it"
            return tuple(key.split(".")), (
                f"Keep the optimizer's state in Streaming Memory with {key}{where}, or {_MORE_STAGES}."
            )
        case _:
            return ("pipeline", "device_mapping"), (
                "Cut the model into more stages on more IPUs, or move layers to an IPU with room."
            )


def _feed(experiment: Experiment, found: Fit) -> str | None:
    """Return the queue whose element is what does not fit, if it is: in its buffer, or kept as the first stage's input.

    More stages do not help there: the element comes to one IPU, or leaves it, in any case.
    """
    program, worst = experiment.program, found.too_large[0]
    mapping = program.shape.mapping
    if found.largest == Holder.STREAMS:
        sizes = {
            "infeed": program.infeed.element_bytes if mapping[0] == worst.ipu else 0,
            "outfeed": program.outfeed.element_bytes if mapping[-1] == worst.ipu else 0,
        }
        return max(sizes, key=lambda name: sizes[name])
    here = [stage for stage in found.footprint.stages if stage.ipu == worst.ipu]
    first = found.footprint.stages[0]
    if found.largest == Holder.FIFOS and program.shape.recomputes(0) and first in here:
        return "infeed" if first.fifo_bytes == max(stage.fifo_bytes for stage in here) else None
    return None


def _feed_remedy(experiment: Experiment, feed: str) -> tuple[KeyPath, str]:
    path: KeyPath = (feed, "element_bytes")
    if path in experiment.source.values:
        return path, f"Make {feed}.element_bytes smaller: a whole element of the {feed} lies on this IPU."
    return _MICRO_BATCH, (
        f"Make micro_batch_size smaller, or the samples: a whole element of the {feed} lies on this IPU, however many "
        "stages there are."
    )
