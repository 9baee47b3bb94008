"""Whether a pipeline fits its IPUs, and what to change in Graphcore's names where it does not."""

from __future__ import annotations

from typing import Final

from ipusim.analysis.fit import Fit, remote_verdict
from ipusim.errors import OutOfMemoryError
from ipusim.hardware.system import System
from ipusim.ipu.enums import PipelineSchedule
from ipusim.pipeline.holders import Holder
from ipusim.schedules.registry import Schedule

_STAGES: Final = "the model into more computational_stages on more IPUs"


def check_memory(found: Fit, system: System, schedule: Schedule) -> None:
    """Raise OutOfMemoryError, with a remedy, unless all fits the IPUs and the Streaming Memory beside them."""
    if found.too_large:
        raise OutOfMemoryError(f"{found.verdict()} {_remedy(found, system, schedule)}")
    if text := remote_verdict(found.footprint, system):
        raise OutOfMemoryError(f"{text} Offload less, or cut {_STAGES}.")


def _remedy(found: Fit, system: System, schedule: Schedule) -> str:
    """Return what makes the largest holder of the fullest IPU smaller, as a sentence."""
    shape, updating = found.plan.shape, found.too_large[0].op is None
    match found.largest:
        case Holder.FIFOS if not (shape.recompute or shape.recompute_inline):
            other = schedule.shallower
            name = other and PipelineSchedule(other).name
            shallower = f", take PipelineSchedule.{name}, whose FIFOs are half as deep" if other else ""
            return f"Set IPUConfig.allow_recompute{shallower}, or feed smaller micro-batches."
        case Holder.STREAMS:
            return "Feed smaller micro-batches: a whole element of a queue lies on this IPU."
        case Holder.LIVE if updating:
            return f"Cut {_STAGES}."
        case Holder.FIFOS | Holder.LIVE | Holder.COPIES:
            return f"Feed smaller micro-batches, or cut {_STAGES}."
        case Holder.STATE:
            enabled = "IPUConfig.device_connection.enable_remote_buffers"
            wanted = enabled if system.streaming is None else "offload_weight_update_variables"
            return f"Keep the optimizer's state in Streaming Memory with {wanted}, or cut {_STAGES}."
        case _:
            return f"Cut {_STAGES}, or take another device_mapping."
