"""Classes drawn for a loss of some of them, the frequent ones more often, as TensorFlow's candidate samplers draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipusim.ipu.operations.without_gradient import WithoutGradient
from ipusim.model.layers.layer import Array, LayerCost, Saved
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class LogUniformCandidates(WithoutGradient):
    """Classes drawn with P(k) = log((k + 2) / (k + 1)) / log(classes + 1), beside (true classes,).

    Attributes:
        count: to draw.
        classes: that there are.
        unique: whether each is drawn once at most: what was drawn already is drawn again.
        seed: of the draws.
    """

    count: int
    classes: int
    unique: bool
    seed: tuple[int, ...]

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return the classes, and how often true and drawn ones are expected, in int64 and float32."""
        (true,) = arrays
        rng = np.random.default_rng(self.seed)
        drawn: list[int] = []
        seen: set[int] = set()
        tries = 0
        while len(drawn) < self.count:
            tries += 1
            found = min(int(math.exp(rng.random() * math.log(self.classes + 1))) - 1, self.classes - 1)
            if not self.unique or found not in seen:
                drawn.append(found)
                seen.add(found)
        sampled = np.array(drawn, np.int64)
        return (sampled, self._expected(true, tries), self._expected(sampled, tries)), None

    def _expected(self, classes: Array, tries: int) -> Array:
        """Return how often classes are expected in so many tries; at most once each where they are unique."""
        share = np.log((classes + 2.0) / (classes + 1.0)) / math.log(self.classes + 1)
        found = -np.expm1(tries * np.log1p(-share)) if self.unique else share * tries
        return np.asarray(found, np.float32)

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the work: a draw, a product and exp for a class, where one try is enough, and four for its share."""
        expected = self.count + arrays[0].size
        work = Work(
            vector=self.count * VectorWork(2, transcendentals=1) + expected * VectorWork(3, 0, 1, 3),
            sram_bytes=(2 * self.count + 2 * expected) * 4,
            itemsize=4,
            compute_sets=3,
        )
        return LayerCost(work, Work())
