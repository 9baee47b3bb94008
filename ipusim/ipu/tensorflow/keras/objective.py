"""What compile asks for: the losses and metrics of a model's outputs, computed of each micro-batch on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime.each_loss import concrete
from ipusim.ipu.tensorflow.keras import losses, metrics
from ipusim.ipu.tensorflow.keras.metrics import Metric
from ipusim.ipu.tensorflow.losses import in_rows


class _LossMean(Metric):
    """The mean of a loss over micro-batches."""

    sends_mean = True

    def statistics(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Any, ...]:
        """Return the loss."""
        return (y_true,)

    def add(self, statistics: Sequence[Any], count: int = 1) -> None:
        """Add the losses of ``count`` micro-batches."""
        super().add((statistics[0], float(count)), count)

    def result_of(self, total: Sequence[Any]) -> float:
        """Return their mean."""
        return float(total[0] / total[1])


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

    def __init__(self, loss: Any, asked: Any, weighted: Any, loss_weights: Any) -> None:
        """Take them; what they are is found when there are outputs."""
        self.asked = loss, asked, weighted, loss_weights
        self._names: tuple[str, ...] | None = None
        self._losses: list[tuple[str, losses.Loss, float]] = []
        self._metrics: list[tuple[int, Metric, bool]] = []
        self._sizes: list[int] = []
        self._total = _LossMean("loss")
        self._own: list[Metric] = []

    @property
    def metrics(self) -> list[Metric]:
        """Those that logs have, in order."""
        return [self._total, *self._own, *(metric for _, metric, _ in self._metrics)]

    def _resolve(self, names: tuple[str, ...], labels: Sequence[Any], predictions: Sequence[Any]) -> None:
        """Find losses and metrics of outputs by their names; raises ProgramError where they do not go together."""
        loss, asked, weighted, loss_weights = self.asked
        if loss is None:
            raise ProgramError("Model: expected a loss in compile(), got none")
        self._names = names
        found = [losses.loss_of(each) for each in _by_output("loss", loss, names, every=True)]
        factors = [1.0 if each is None else float(each) for each in _by_output("loss_weights", loss_weights, names)]
        self._losses = [(name, each, by) for name, each, by in zip(names, found, factors, strict=True)]
        self._own = [_LossMean(f"{name}_loss") for name in names] if len(names) > 1 else []
        self._metrics = []
        for given, takes_weights in ((asked, False), (weighted, True)):
            for place, each in enumerate(_metrics_of(given, names)):
                shapes = tuple(anp.shape(labels[place])), tuple(anp.shape(predictions[place]))
                for one in each:
                    metric = metrics.get(one, *shapes)
                    if len(names) > 1 and not isinstance(one, Metric):
                        metric.name = f"{names[place]}_{metric.name}"
                    self._metrics.append((place, metric, takes_weights))
        known = [each.name for each in self.metrics]
        for name in known:
            if known.count(name) > 1:
                raise ProgramError(f"metrics: expected each by another name, got {name!r} twice: give them names")

    def terms(self, names: tuple[str, ...], y: Any, y_pred: Any, sample_weight: Any) -> list[Any]:
        """Return the loss of a micro-batch, and then the statistics of all metrics.

        Raises ProgramError for labels that are missing, or for outputs that have others.
        """
        predictions = y_pred if isinstance(y_pred, list | tuple) else [y_pred]
        if y is None:
            raise ProgramError(
                "Target data is missing. Your model was compiled with a loss, and therefore expects target data to be "
                "provided in `fit()`."
            )
        labels = [
            in_rows(each, of) for each, of in zip(_by_output("y", y, names, every=True), predictions, strict=True)
        ]
        weights = _by_output("sample_weight", sample_weight, names)
        if self._names != names:
            self._resolve(names, labels, predictions)
        parts = [
            _scalar(each(label, prediction, weight))
            for (_, each, _), label, prediction, weight in zip(self._losses, labels, predictions, weights, strict=True)
        ]
        scaled = [
            part if by == 1.0 else part * np.float32(by) for part, (_, _, by) in zip(parts, self._losses, strict=True)
        ]
        total = scaled[0] if len(scaled) == 1 else anp.sum(anp.stack(scaled))
        found = [total, *(parts if self._own else ())]
        self._sizes = [1] * len(found)
        for place, metric, takes_weights in self._metrics:
            given = metric.statistics(labels[place], predictions[place], weights[place] if takes_weights else None)
            self._sizes.append(len(given))
            found += [anp.asarray(concrete(each)) if not hasattr(each, "dtype") else concrete(each) for each in given]
        return found

    def add(self, sums: Sequence[Any], count: int, samples: int = 1) -> None:
        """Add the terms of ``count`` micro-batches, summed up; a mean among them is that of so many ``samples``."""
        start = 0
        for metric, size in zip(self.metrics, self._sizes, strict=True):
            if size == 1 and metric.sends_mean:
                metric.add([sums[start] * samples], count * samples)
            else:
                metric.add(sums[start : start + size], count)
            start += size

    def logs(self) -> dict[str, float]:
        """Return the values so far, by their names."""
        return {metric.name: metric.result() for metric in self.metrics}


def _scalar(loss: Any) -> Any:
    """Return a loss as a number: the mean where it is not reduced, as Keras."""
    return anp.mean(loss) if anp.shape(loss) else loss


def _by_output(what: str, given: Any, names: tuple[str, ...], *, every: bool = False) -> list[Any]:
    """Return what each output has of something given for all, in a list or by their names; None for none.

    Raises ProgramError for another number or names, and where ``every`` output must have it.
    """
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise ProgramError(f"{what}: expected names of outputs, {', '.join(names)}, got {name!r}")
        found = [given.get(name) for name in names]
    elif isinstance(given, list | tuple):
        found = list(given)
    else:
        found = [given] if len(names) == 1 else [given] * len(names)
    if len(found) != len(names):
        raise ProgramError(f"{what}: expected one for each output, {', '.join(names)}, got {len(found)}")
    if every and any(each is None for each in found):
        raise ProgramError(f"{what}: expected one for each output, got none for {names[found.index(None)]!r}")
    return found


def _metrics_of(given: Any, names: tuple[str, ...]) -> list[list[Any]]:
    """Return the metrics of each output."""
    if given is None:
        return [[] for _ in names]
    if isinstance(given, Mapping):
        return [_listed(each) for each in _by_output("metrics", given, names)]
    if len(names) > 1 and isinstance(given, list | tuple) and all(isinstance(each, list | tuple) for each in given):
        return [list(each) for each in _by_output("metrics", given, names)]
    return [_listed(given) for _ in names]


def _listed(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
