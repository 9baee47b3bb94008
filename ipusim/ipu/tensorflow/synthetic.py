"""Images of classes that stand in for MNIST: drawn, as a scenario's `type: synthetic` draws them, and not loaded."""

from __future__ import annotations

from ipusim.model.data.synthetic import synthetic_classes
from ipusim.model.layers.layer import Array

_Pair = tuple[Array, Array]


def load_data(samples: int = 5120, test_samples: int = 512, seed: int = 1) -> tuple[_Pair, _Pair]:
    """Return (images, labels) to train on and to test on: 28 x 28 pixels in float32, 10 classes in int32."""
    both = synthetic_classes((28, 28), 10, samples, seed=seed), synthetic_classes((28, 28), 10, test_samples, seed=seed)
    (train, train_labels), (test, test_labels) = ((each.x, each.y) for each in both)
    return (train, train_labels), (test, test_labels)
