"""Compute connectionist temporal classification: loss of a label sequence without alignment to time steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc
from annotated_types import Ge, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, LayerCost, ParameterlessLoss, Parameters, Saved, Shape
from ipusim.model.layers.outline import Outline
from ipusim.model.work import VectorWork, work_of

#: Work of log(exp(a) + exp(b)): maximum, difference, exp, log(1 + x), sum.
_LOG_SUM: Final = VectorWork(3, transcendentals=2)


@dataclass(frozen=True)
class CTC(ParameterlessLoss):
    """The loss of label sequences in order, with optional blanks in between (Graves et al. 2006).

    The loss is the mean over the micro-batch of -log of the total probability of alignments that read as the labels,
    after removing repetitions and then blanks. Outputs are (batch, time steps, classes). Labels of a sample are whole
    numbers, padded with blanks or -1.
    """

    kind: ClassVar = "ctc"

    labels: Annotated[Axis, Doc("number of labels of the longest sample")]
    blank: Annotated[
        int,
        Ge(-65_536),
        Le(65_535),
        Doc("class of the blank, which stands for no label; a negative number counts from the end"),
    ] = -1
    timed: Annotated[
        bool, Doc("whether a sample's labels are followed by its number of time steps; by default all time steps count")
    ] = False
    log_probabilities: Annotated[
        bool,
        Doc("whether outputs are logarithms of probabilities; by default softmax turns outputs into probabilities"),
    ] = False

    def __post_init__(self) -> None:
        """Raise ModelError for zero labels."""
        if self.labels < 1:
            raise ModelError(f"expected room for at least 1 label in a sample, got {self.labels}")

    def _blank(self, classes: int) -> int:
        blank = self.blank + classes * (self.blank < 0)
        if not 0 <= blank < classes:
            raise ModelError(f"expected a blank among {classes} classes, got class {self.blank}")
        return blank

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        """Raise ModelError unless the labels of every sample fit into its time steps."""
        if len(input_shape) != 2:
            raise ModelError(f"ctc needs outputs of two axes, time steps and classes, got shape {input_shape}")
        self._blank(input_shape[1])
        if labels.dtype.kind not in "iu":
            raise ModelError(f"ctc needs whole-number labels, got {labels.dtype} labels")
        shape = (self.labels + self.timed,)
        if labels.shape[1:] != shape:
            raise ModelError(f"ctc with {self.labels} labels needs labels of shape {shape}, got {labels.shape[1:]}")
        if labels.size and labels[:, : self.labels].max() >= input_shape[1]:
            raise ModelError(
                f"ctc on {input_shape[1]} classes needs labels from 0 to {input_shape[1] - 1}, got label "
                f"{labels[:, : self.labels].max()}"
            )
        untyped_labels: object = labels
        if not isinstance(untyped_labels, Outline):
            _check_room(self.states(input_shape, labels), input_shape[0])

    def states(self, input_shape: Shape, labels: Array) -> States:
        """Return the states of the samples' alignments."""
        label_ids, blank = labels[:, : self.labels].astype(np.int64), self._blank(input_shape[1])
        steps = labels[:, -1].astype(np.int64) if self.timed else np.full(len(labels), input_shape[0])
        padding = (label_ids < 0) | (label_ids == blank)
        counts = np.where(padding.any(axis=1), padding.argmax(axis=1), self.labels)
        classes = np.full((len(labels), 2 * self.labels + 1), blank)
        classes[:, 1::2] = np.where(np.arange(self.labels) < counts[:, None], label_ids, blank)
        return States(classes, counts, steps, blank)

    def zero_labels(self, input_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Array:
        """Return a single non-blank label per sample, with full time steps."""
        labels = np.full((samples, self.labels + self.timed), -1, np.int32)
        labels[:, 0] = int(self._blank(input_shape[1]) == 0)
        if self.timed:
            labels[:, -1] = input_shape[0]
        return labels

    def per_example(self, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Return the loss per sample, and the saved arrays for :meth:`per_example_gradient`."""
        states = self.states(x.shape[1:], labels)
        scores = x.astype(np.result_type(x, np.float32))
        if not self.log_probabilities:
            scores = scores - scores.max(axis=-1, keepdims=True)
            scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        alphas = states.forward_variables(scores)
        return (-states.end_scores(alphas)).astype(x.dtype), (scores, alphas, states, x.dtype)

    def per_example_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return the gradient of the outputs from the gradients of the losses (batch,)."""
        scores, alphas, states, dtype = saved_values
        shares = states.class_shares(scores, alphas)
        logits = -shares
        if not self.log_probabilities:
            steps = np.arange(scores.shape[1]) < states.steps[:, None]
            logits += np.exp(scores) * steps[..., None]
        gradient: Array = (logits * grad[:, None, None]).astype(dtype)
        return gradient

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Return the mean loss."""
        losses, saved_values = self.per_example(x, labels)
        return np.asarray(losses.mean(dtype=x.dtype)), saved_values

    def input_gradient(self, saved_values: Saved, scale: float) -> Array:
        """Return the gradient: softmax minus share of alignments, by time step and class."""
        samples = len(saved_values[0])
        return self.per_example_gradient(saved_values, np.full(samples, scale / samples))

    def constant_loss(self, labels: Array) -> float | None:
        """Return None: the value would depend on the time steps."""
        return None

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work for S = 2 * labels + 1 states at each of T time steps.

        The softmax costs the same as in softmax cross entropy. In both passes, a state sums three logarithms. Steps are
        sequential, so each time step takes a compute set (PopLibs' CTC loss; one set per step is assumed). In the
        backward pass, a state also adds its share to its class, and an output takes a difference and a product.
        """
        steps, _ = input_shape
        elements, state_count = batch * math.prod(input_shape), batch * steps * (2 * self.labels + 1)
        softmax = VectorWork(1, reductions=2, transcendentals=1) * (not self.log_probabilities)
        state_work = state_count * (2 * _LOG_SUM + VectorWork(1))
        forward = work_of(
            itemsize,
            vector=elements * softmax + state_work + VectorWork(reductions=batch),
            accesses=2 * elements + 2 * state_count,
            exchanged=elements + state_count,
            compute_sets=5 * (not self.log_probabilities) + steps + 2,
        )
        backward = work_of(
            itemsize,
            vector=state_work + state_count * VectorWork(1, reductions=1, transcendentals=1) + VectorWork(2 * elements),
            accesses=2 * elements + 3 * state_count,
            exchanged=elements + state_count,
            compute_sets=steps + 3,
        )
        return LayerCost(forward, backward)


class States(NamedTuple):
    """States of alignments: a sample's labels with blanks before, between and after.

    Attributes:
        classes: classes of the states, (batch, 2 * labels + 1); states after a sample's last blank are unused.
        counts: number of labels of each sample.
        steps: number of time steps of each sample.
        blank: class of the blank.
    """

    classes: Array
    counts: Array
    steps: Array
    blank: int

    @property
    def can_skip(self) -> Array:
        """Mask of states that may follow the state two before them, because they have another label."""
        mask = np.zeros(self.classes.shape, bool)
        mask[:, 2:] = (self.classes[:, 2:] != self.blank) & (self.classes[:, 2:] != self.classes[:, :-2])
        return mask

    def emission_scores(self, scores: Array) -> Array:
        """Return log probabilities per time step and state, (batch, time steps, states)."""
        scores_of: Array = np.take_along_axis(scores, self.classes[:, None, :].repeat(scores.shape[1], axis=1), axis=2)
        return scores_of

    def forward_variables(self, scores: Array) -> Array:
        """Return the forward variables: log probabilities of reaching a state with every label before it."""
        emitted, can_skip = self.emission_scores(scores), self.can_skip
        alphas = np.full_like(emitted, -np.inf)
        if scores.shape[1]:
            alphas[:, 0, :2] = emitted[:, 0, :2]
        for t in range(1, scores.shape[1]):
            alphas[:, t] = emitted[:, t] + _sums_over_predecessors(alphas[:, t - 1], can_skip)
        return alphas

    def end_scores(self, alphas: Array) -> Array:
        """Return the log probabilities of the samples' complete alignments."""
        rows = np.arange(len(alphas))
        last = alphas[rows, self.steps - 1]
        blank = last[rows, 2 * self.counts]
        label = np.where(self.counts > 0, last[rows, np.maximum(2 * self.counts - 1, 0)], -np.inf)
        total: Array = np.logaddexp(blank, label)
        return total

    def class_shares(self, scores: Array, alphas: Array) -> Array:
        """Return the share of alignments that have a class at a time step, (batch, time steps, classes)."""
        emitted, can_skip = self.emission_scores(scores), self.can_skip
        states = np.arange(self.classes.shape[1])
        ends = 2 * self.counts[:, None]
        final = np.where((states == ends) | ((states == ends - 1) & (ends > 0)), 0.0, -np.inf).astype(scores.dtype)
        beta = np.full_like(final, -np.inf)
        shares = np.zeros_like(scores)
        total, rows = self.end_scores(alphas)[:, None], np.arange(len(scores))[:, None]
        for t in reversed(range(scores.shape[1])):
            if t + 1 < scores.shape[1]:
                beta = _sums_over_successors(beta + emitted[:, t + 1], can_skip)
            beta = np.where(t == self.steps[:, None] - 1, final, np.where(t < self.steps[:, None], beta, -np.inf))
            np.add.at(shares[:, t], (rows, self.classes), np.exp(alphas[:, t] + beta - total))
        return shares


def _sums_over_predecessors(values: Array, can_skip: Array) -> Array:
    """Return the log sums over a state and its one or two predecessors.

    ``values`` contains logarithms of the previous time step, (batch, states).
    """
    sums = values.copy()
    sums[:, 1:] = np.logaddexp(sums[:, 1:], values[:, :-1])
    jumps = np.where(can_skip[:, 2:], values[:, :-2], -np.inf)
    sums[:, 2:] = np.logaddexp(sums[:, 2:], jumps)
    return sums


def _sums_over_successors(values: Array, can_skip: Array) -> Array:
    """Return the log sums over a state and its successors, like :func:`_sums_over_predecessors`."""
    sums = values.copy()
    sums[:, :-1] = np.logaddexp(sums[:, :-1], values[:, 1:])
    jumps = np.where(can_skip[:, 2:], values[:, 2:], -np.inf)
    sums[:, :-2] = np.logaddexp(sums[:, :-2], jumps)
    return sums


def _check_room(states: States, time_steps: int) -> None:
    """Refuse a sample whose labels exceed its time steps, or whose time steps exceed ``time_steps``."""
    labels: Any = states.classes[:, 1::2]
    is_pair_of_labels = np.arange(1, labels.shape[1]) < states.counts[:, None]
    least_steps = states.counts + ((labels[:, 1:] == labels[:, :-1]) & is_pair_of_labels).sum(axis=1)
    for sample, (count, steps) in enumerate(zip(least_steps, states.steps, strict=True)):
        if not 1 <= steps <= time_steps:
            raise ModelError(
                f"ctc on {time_steps} time steps needs samples of 1 to {time_steps} time steps, got {steps} in sample "
                f"{sample}"
            )
        if count > steps:
            raise ModelError(
                f"ctc needs {count} time steps for the {states.counts[sample]} labels of sample {sample}, because a "
                f"blank stands between equal labels, got {steps}"
            )
