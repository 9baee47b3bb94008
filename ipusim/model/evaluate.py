"""Evaluate trained weights: loss and accuracy on samples unseen in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.base.errors import ModelError
from ipusim.model.data.datasets import Dataset
from ipusim.model.layers.layer import Parameters
from ipusim.model.stages.stage import LayerStage


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, and share of correct answers (None for a loss without classes), over ``samples``."""

    loss: float
    accuracy: float | None
    samples: int


def evaluate(
    stages: Sequence[LayerStage], parameters: Sequence[Parameters], dataset: Dataset, batch_size: int = 256
) -> Evaluation:
    """Evaluate the samples of ``dataset`` with the stages and their loss, ``batch_size`` samples at a time.

    ``parameters`` contains the weights per stage. The last, smaller batch is weighted by sample count. Raises
    ModelError if the last stage has no loss.
    """
    named_loss = stages[-1].loss
    if named_loss is None:
        raise ModelError("cannot evaluate a network without a loss")
    loss_parameters = {
        name: parameters[-1][f"{named_loss.name}/{name}"]
        for name in named_loss.layer.parameter_shapes(stages[-1].shapes[-1])
    }
    total, correct_count = 0.0, 0.0
    classifies = True
    for start in range(0, len(dataset), batch_size):
        x, labels = dataset.x[start : start + batch_size], dataset.y[start : start + batch_size]
        count = len(x)
        for stage, stage_parameters in zip(stages, parameters, strict=True):
            x = stage.whole(stage_parameters).predict(x)
        loss, _ = named_loss.layer.forward(loss_parameters, x, labels)
        total += float(loss) * count
        accuracy = named_loss.layer.accuracy(x, labels)
        classifies = accuracy is not None
        # accuracy * count is the number of samples classified correctly, so batches add up exactly.
        correct_count += (accuracy or 0.0) * count
    samples = len(dataset)
    return Evaluation(total / samples, correct_count / samples if classifies else None, samples)
