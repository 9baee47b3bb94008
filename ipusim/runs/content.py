"""Costs and arithmetic of the stages of a request, in whichever form it describes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ipusim.model.data.datasets import Dataset
from ipusim.model.profile import StageProfile
from ipusim.model.stages.stage import LayerStage
from ipusim.model.workload import Workload
from ipusim.pipeline.feeds import Outfeed


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Evaluation on samples that the training does not see.

    Attributes:
        dataset: the samples.
        stages: one of all layers, that :func:`ipusim.model.evaluate.evaluate` runs them through.
        every: steps from one evaluation to the next; None for one after the last step.
    """

    dataset: Dataset
    stages: tuple[LayerStage, ...]
    every: int | None


@dataclass(frozen=True, eq=False)
class Content:
    """Costs and arithmetic of stages.

    Attributes:
        profiles: what each stage asks of an IPU.
        infeed_bytes: of one element for the first stage.
        outfeed: what leaves the last stage, with its bytes.
        micro_batch_size: samples in a micro-batch.
        result_bytes: of the outfeed's elements, those that the host keeps of each.
        samples: of the data, 0 where they do not end.
        sums_gradients: whether replicas sum up their gradients before a weight update; else the stages do.
        sums_over_hosts: whether hosts do; else what they do themselves with gradients does.
        workload: the arithmetic of a replica, by its number; None where only time is simulated.
        held_out: evaluation; None without held-out samples or a loss.
        constant_loss: loss of the best predictor that ignores its input, on the training data; None without
            arithmetic, or when the loss does not say.
    """

    profiles: tuple[StageProfile, ...]
    infeed_bytes: int
    outfeed: Outfeed
    micro_batch_size: int = 1
    result_bytes: int = 0
    samples: int = 0
    sums_gradients: bool = True
    sums_over_hosts: bool = True
    workload: Callable[[int], Workload] | None = None
    held_out: HeldOut | None = None
    constant_loss: float | None = None
