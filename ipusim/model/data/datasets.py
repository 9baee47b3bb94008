"""Hold samples and labels in memory, checked once, and split into training and held-out parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import Array, Loss, Shape
from ipusim.model.layers.outline import Outline


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples ``x`` (samples, ...) and labels ``y`` (samples, ...); outlines without data if only time is simulated.

    Raises ModelError for an empty dataset, unequal lengths, non-finite values, or class numbers outside ``classes``.

    Attributes:
        x: inputs.
        y: class numbers (int32), or floating-point targets.
        classes: number of classes; None for a regression.
        name: name in messages.
    """

    x: Array
    y: Array
    classes: int | None = None
    name: str = "dataset"

    def __post_init__(self) -> None:
        """Check the arrays once for later readers."""
        if len(self.x) == 0:
            raise ModelError(f"{self.name}: no samples")
        if len(self.x) != len(self.y):
            raise ModelError(f"{self.name}: {len(self.x)} samples but {len(self.y)} labels: each sample needs one")
        for role, array in (("inputs", self.x), ("labels", self.y)):
            if array.dtype.kind not in "iuf":
                raise ModelError(f"{self.name}: expected numbers as {role}, got {array.dtype}")
            if array.dtype.kind == "f" and not self.is_outlined and not np.isfinite(array).all():
                raise ModelError(f"{self.name}: {role} hold values that are not finite")
        if self.classes is not None and (self.y.min() < 0 or self.y.max() >= self.classes):
            raise ModelError(
                f"{self.name}: expected class numbers from 0 to {self.classes - 1}, "
                f"got {self.y.min()} to {self.y.max()}"
            )

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.x)

    @property
    def is_outlined(self) -> bool:
        """Whether samples and labels are outlines without data; samples are interchangeable then."""
        x: Any = self.x
        return isinstance(x, Outline)

    @property
    def sample_shape(self) -> Shape:
        """Shape of a sample."""
        return self.x.shape[1:]

    def astype(self, dtype: npt.DTypeLike) -> Dataset:
        """Return the dataset with floating-point arrays in ``dtype``; whole numbers stay unchanged."""
        x, y = (a.astype(dtype, copy=False) if a.dtype.kind == "f" else a for a in (self.x, self.y))
        return replace(self, x=x, y=y)

    def split(self, hold_out: float, seed: int) -> tuple[Dataset, Dataset]:
        """Return a random training part and a disjoint held-out part.

        ``hold_out`` is a number of samples; below 1 it is a fraction of the samples, rounded to a whole number. Raises
        ModelError if either part would be empty.
        """
        samples = round(hold_out * len(self)) if 0 < hold_out < 1 else hold_out
        if not (0 < samples < len(self) and samples == int(samples)):
            most = len(self) - 1
            expected = (
                f"a number from 1 to {most}, or a fraction that gives such a number" if most > 1 else "more samples"
            )
            raise ModelError(f"{self.name}: cannot hold out {hold_out:g} of {len(self)} samples: expected {expected}")
        train: Any = slice(int(samples), None)
        test: Any = slice(int(samples))
        if not self.is_outlined:
            order = np.random.default_rng([seed, len(self)]).permutation(len(self))
            train, test = order[train], order[test]
        return replace(self, x=self.x[train], y=self.y[train]), replace(self, x=self.x[test], y=self.y[test])


def constant_predictor_loss(dataset: Dataset, loss: Loss) -> float | None:
    """Return the loss of the best predictor that ignores the input, in the dataset's measure.

    The result is the entropy of class frequencies for cross entropy, the variance of targets for mean squared error,
    and None for a user-defined loss.
    """
    return loss.constant_loss(dataset.y)
