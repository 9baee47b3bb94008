"""The losses and metrics of ``compile``, by output, computed for each micro-batch on the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime.per_example_loss import concrete
from ipusim.ipu.tensorflow.keras import losses, metrics
from ipusim.ipu.tensorflow.keras.metrics import MeanMetricWrapper, Metric
from ipusim.ipu.tensorflow.losses import in_rows


def _loss_mean(name: str) -> Metric:
    """Return the mean of a loss over micro-batches."""
    return MeanMetricWrapper(lambda loss, _: loss, name)


class Objective:
    """Losses and metrics.

    Args:
        loss: one, or a list or a dictionary of them by the names of outputs.
        asked: metrics, likewise.
        weighted: metrics that take sample weights.
        loss_weights: of the losses of several outputs.

    Attributes:
        asked: all four, as they were given.
    """

    def __init__(self, loss: Any, metrics_of: Any, weighted: Any, loss_weights: Any) -> None:
        """Take them; what they are is found when there are outputs."""
        self.arguments = loss, metrics_of, weighted, loss_weights
        self._names: tuple[str, ...] | None = None
        self._losses: list[losses.Loss] = []
        self._factors: list[float] = []
        self._metrics: list[tuple[int, Metric, bool]] = []
        self._sizes: list[int] = []
        self._total = _loss_mean("loss")
        self._summed = 1
        self._own: list[Metric] = []

    @property
    def metrics(self) -> list[Metric]:
        """Those that logs have, in order."""
        return [self._total, *self._own, *(metric for _, metric, _ in self._metrics)]

    def _resolve(self, names: tuple[str, ...], labels: Sequence[Any], predictions: Sequence[Any]) -> None:
        """Find losses and metrics of outputs by their names; raises ProgramError where they do not go together."""
        loss, unweighted, weighted, loss_weights = self.arguments
        if loss is None:
            raise ProgramError("Model: expected a loss in compile(), got none")
        self._names = names
        self._losses = [losses.loss_of(item) for item in _by_output("loss", loss, names, every=True)]
        factors = _by_output("loss_weights", loss_weights, names)
        self._factors = [1.0 if item is None else float(item) for item in factors]
        self._own = [_loss_mean(f"{name}_loss") for name in names] if len(names) > 1 else []
        self._metrics = []
        for value, takes_weights in ((unweighted, False), (weighted, True)):
            for output, item in enumerate(_metrics_of(value, names)):
                shapes = tuple(anp.shape(labels[output])), tuple(anp.shape(predictions[output]))
                for one in item:
                    metric = metrics.get(one, *shapes)
                    if len(names) > 1 and not isinstance(one, Metric):
                        metric.name = f"{names[output]}_{metric.name}"
                    self._metrics.append((output, metric, takes_weights))
        known = [item.name for item in self.metrics]
        for name in known:
            if known.count(name) > 1:
                raise ProgramError(f"metrics: expected each by another name, got {name!r} twice: give them names")

    def terms(self, names: tuple[str, ...], y: Any, y_pred: Any, sample_weight: Any) -> list[Any]:
        """Return the loss of a micro-batch, and then the statistics of all metrics.

        As in Keras, losses that are not reduced are trained on as their sum, and their mean is logged. Raises
        ProgramError for labels that are missing, for outputs that have others, and for losses of several shapes.
        """
        predictions = y_pred if isinstance(y_pred, list | tuple) else [y_pred]
        if y is None:
            raise ProgramError(
                "Target data is missing. Your model was compiled with a loss, and therefore expects target data to be "
                "provided in `fit()`."
            )
        labels = [
            in_rows(item, of) for item, of in zip(_by_output("y", y, names, every=True), predictions, strict=True)
        ]
        weights = _by_output("sample_weight", sample_weight, names)
        if self._names != names:
            self._resolve(names, labels, predictions)
        outputs = zip(self._losses, labels, predictions, weights, strict=True)
        values = [loss(*arguments) for loss, *arguments in outputs]
        shape, *others = map(anp.shape, values)
        for other in others:
            if other != shape:
                raise ProgramError(f"loss: expected losses of one shape for all outputs, got {shape} and {other}")
        factors = zip(values, self._factors, strict=True)
        scaled = [value if factor == 1.0 else value * np.float32(factor) for value, factor in factors]
        total = scaled[0] if len(scaled) == 1 else anp.stack(scaled)
        self._summed = math.prod(shape)
        result = [anp.sum(total) if anp.shape(total) else total, *(map(_scalar, values) if self._own else ())]
        self._sizes = [1] * len(result)
        for output, metric, takes_weights in self._metrics:
            value = metric.statistics(labels[output], predictions[output], weights[output] if takes_weights else None)
            self._sizes.append(len(value))
            result += [anp.asarray(concrete(item)) if not hasattr(item, "dtype") else concrete(item) for item in value]
        return result

    def add(self, sums: Sequence[Any], count: int, samples: int = 1) -> None:
        """Add the terms of ``count`` micro-batches, summed up; a mean among them is that of so many ``samples``."""
        start = 0
        for metric, size in zip(self.metrics, self._sizes, strict=True):
            if size == 1 and metric.sends_mean:
                mean = sums[start] / self._summed if metric is self._total else sums[start]
                metric.add([mean * samples], count * samples)
            else:
                metric.add(sums[start : start + size], count)
            start += size

    def logs(self) -> dict[str, float]:
        """Return the values so far, by their names."""
        return {metric.name: metric.result() for metric in self.metrics}


def _scalar(loss: Any) -> Any:
    """Return a loss as a number, as Keras logs it: the mean where it is not reduced."""
    return anp.mean(loss) if anp.shape(loss) else loss


def _by_output(what: str, value: Any, names: tuple[str, ...], *, every: bool = False) -> list[Any]:
    """Return what each output has of something given for all, in a list or by their names; None for none.

    Raises ProgramError for another number or names, and where ``every`` output must have it.
    """
    if isinstance(value, Mapping):
        for name in value:
            if name not in names:
                raise ProgramError(f"{what}: expected names of outputs, {', '.join(names)}, got {name!r}")
        result = [value.get(name) for name in names]
    elif isinstance(value, list | tuple):
        result = list(value)
    else:
        result = [value] if len(names) == 1 else [value] * len(names)
    if len(result) != len(names):
        raise ProgramError(f"{what}: expected one for each output, {', '.join(names)}, got {len(result)}")
    if every and any(item is None for item in result):
        raise ProgramError(f"{what}: expected one for each output, got none for {names[result.index(None)]!r}")
    return result


def _metrics_of(value: Any, names: tuple[str, ...]) -> list[list[Any]]:
    """Return the metrics of each output."""
    if value is None:
        return [[] for _ in names]
    if isinstance(value, Mapping):
        return [_listed(item) for item in _by_output("metrics", value, names)]
    if len(names) > 1 and isinstance(value, list | tuple) and all(isinstance(item, list | tuple) for item in value):
        return [list(item) for item in _by_output("metrics", value, names)]
    return [_listed(value) for _ in names]


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
