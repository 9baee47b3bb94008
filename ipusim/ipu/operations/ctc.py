"""The loss of each sample by connectionist temporal classification, and the search for the likeliest labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.ipu.operations.without_gradient import WithoutGradient
from ipusim.model.layers.ctc import CTC
from ipusim.model.layers.layer import Array, LayerCost, Saved
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class EachCTC:
    """The core's loss of (outputs, labels) for each sample, with the cost of the core's."""

    loss: CTC

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return the losses (batch,); raises ModelError for labels that do not fit."""
        x, labels = arrays
        self.loss.check_labels(x.shape[1:], labels)
        losses, saved = self.loss.each(x, labels)
        return (losses,), saved

    def backward(self, saved: Saved, grads: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Return the gradient of the outputs."""
        return [self.loss.each_back(saved, grads[0]) for _ in wanted]

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the loss's own."""
        x = arrays[0]
        return self.loss.cost(x.shape[1:], len(x), x.dtype.itemsize)


@dataclass(frozen=True)
class BeamSearch(WithoutGradient):
    """The likeliest labels of (scores, steps): scores (batch, time steps, classes), so many steps of each sample.

    A beam is labels with the probabilities of all their alignments so far, that end in a blank and that do not
    (Graves 2012; Hannun et al. 2014). Where two are as likely, the one that was found earlier comes first.

    Attributes:
        width: beams that go on after each time step.
        paths: labels that are returned.
        blank: the blank's class.
        log_probabilities: whether scores are logarithms of probabilities; else logits.
    """

    width: int
    paths: int
    blank: int
    log_probabilities: bool

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return negative log probabilities, lengths, and labels with -1 behind them, in int32."""
        scores, steps = arrays
        x = scores.astype(np.result_type(scores, np.float32))
        if not self.log_probabilities:
            x = x - x.max(axis=-1, keepdims=True)
            x = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
        losses = np.full((len(x), self.paths), np.inf, scores.dtype)
        lengths = np.zeros((len(x), self.paths), np.int32)
        labels = np.full((len(x), self.paths, x.shape[1]), -1, np.int32)
        for sample, count in enumerate(steps):
            for path, (found, score) in enumerate(self._search(x[sample, :count])):
                losses[sample, path], lengths[sample, path] = -score, len(found)
                labels[sample, path, : len(found)] = found
        return (losses, lengths, labels), None

    def _search(self, scores: Array) -> list[tuple[tuple[int, ...], float]]:
        """Return the labels of the likeliest beams with their log probabilities, the likeliest first."""
        beams: list[tuple[int, ...]] = [()]
        blank, label = np.zeros(1, scores.dtype), np.full(1, -np.inf, scores.dtype)
        for row in scores:
            beams, blank, label = self._step(row, beams, blank, label)
        total = np.logaddexp(blank, label)
        order = np.argsort(-total, kind="stable")[: self.paths]
        return [(beams[at], float(total[at])) for at in order]

    def _step(
        self, row: Array, beams: list[tuple[int, ...]], blank: Array, label: Array
    ) -> tuple[list[tuple[int, ...]], Array, Array]:
        """Go on one time step: each beam stays as it is, by a blank or its last label again, or takes a label more."""
        total = np.logaddexp(blank, label)
        last = np.array([beam[-1] if beam else -1 for beam in beams])
        more = total[:, None] + row
        again = last >= 0
        more[again, last[again]] = blank[again] + row[last[again]]  # without a blank between it would be one label
        more[:, self.blank] = -np.inf
        stay_blank = total + row[self.blank]
        stay_label = np.where(again, label + row[last], -np.inf)
        places = {beam: at for at, beam in enumerate(beams)}
        for at, beam in enumerate(beams):  # what another beam becomes with a label more is this one too
            parent = places.get(beam[:-1]) if beam else None
            if parent is not None:
                stay_label[at] = np.logaddexp(stay_label[at], more[parent, beam[-1]])
                more[parent, beam[-1]] = -np.inf
        scores = np.concatenate([np.logaddexp(stay_blank, stay_label), more.reshape(-1)])
        chosen = [at for at in np.argsort(-scores, kind="stable")[: self.width].tolist() if scores[at] > -np.inf]
        kept: list[Any] = []
        for at in chosen:
            if at < len(beams):
                kept.append((beams[at], stay_blank[at], stay_label[at]))
            else:
                parent, taken = divmod(at - len(beams), len(row))
                kept.append(((*beams[parent], taken), -np.inf, scores[at]))
        blank, label = (np.array([each[n] for each in kept], row.dtype) for n in (1, 2))
        return [each for each, _, _ in kept], blank, label

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the work: at each time step each beam with each class more, and the likeliest of them.

        Each is a sum, a logarithm of two exponentials' sum, and goes into the selection; a time step is four compute
        sets, as PopLibs generates, merges, selects and updates candidates (the number is assumed).
        """
        scores = arrays[0]
        batch, steps, classes = scores.shape
        size, candidates = scores.dtype.itemsize, batch * steps * self.width * classes
        softmax = VectorWork(1, reductions=2, transcendentals=1) * (not self.log_probabilities)
        work = Work(
            vector=candidates * VectorWork(4, reductions=1, transcendentals=2) + scores.size * softmax,
            sram_bytes=(scores.size + 2 * candidates) * size,
            exchange_bytes=candidates * size,
            itemsize=size,
            compute_sets=4 * steps + 5 * (not self.log_probabilities),
        )
        return LayerCost(work, Work(itemsize=size))
