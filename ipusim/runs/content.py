"""Hold costs and arithmetic of a request's stages, for all kinds of requests."""

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
    """Evaluation on samples held out from training.

    Attributes:
        dataset: held-out samples.
        stages: single stage of all layers, for :func:`ipusim.model.evaluate.evaluate`.
        interval: steps between evaluations; None for a single evaluation after the last step.
    """

    dataset: Dataset
    stages: tuple[LayerStage, ...]
    interval: int | None


@dataclass(frozen=True, eq=False)
class Content:
    """Costs and arithmetic of stages.

    Attributes:
        profiles: costs of each stage on an IPU.
        infeed_bytes: bytes of an element for the first stage.
        outfeed: elements that leave the last stage, with their bytes.
        micro_batch_size: samples in a micro-batch.
        result_bytes: bytes of an outfeed element kept by the host.
        samples: number of samples in the data; 0 for unlimited data.
        sums_gradients: whether replicas sum gradients before a weight update; False if the stages' functions sum them.
        sums_over_hosts: whether hosts sum gradients; False if the stages' functions sum them.
        workload: function that returns a replica's arithmetic by number; None in timing-only runs.
        held_out: evaluation; None without held-out samples or a loss.
        constant_loss: training loss of the best predictor that ignores its input; None in timing-only runs, or for
            a loss without such a predictor.
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
