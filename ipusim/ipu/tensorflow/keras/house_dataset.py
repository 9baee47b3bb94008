"""``boston_housing`` of ``tf.keras.datasets``: from the person's own file, or drawn in its ranges."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ipusim.errors import FileError
from ipusim.ipu import checks
from ipusim.ipu.tensorflow.keras.dataset_folder import arrays_of, from_file_or_drawn
from ipusim.model.data.stand_ins import drawn_houses
from ipusim.model.layers.layer import Array


def _file(path: Path) -> tuple[Array, Array]:
    x, y = arrays_of(path, "x", "y")
    if x.ndim != 2 or y.shape != x.shape[:1] or x.dtype.kind not in "iuf" or y.dtype.kind not in "iuf":
        raise FileError(f"features are {x.dtype} of {x.shape}, prices {y.dtype} of {y.shape}")
    return x, y


class boston_housing:  # noqa: N801 - Keras' name of a module
    """Prices of 506 houses, each with 13 features."""

    @staticmethod
    def load_data(
        path: str = "boston_housing.npz", test_split: float = 0.2, seed: int = 113
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return (features, prices) to train on and to test on, in float64.

        Args:
            path: of the file below ``~/.keras/datasets``.
            test_split: the share to test on.
            seed: of the order.

        Raises:
            ProgramError: for a ``test_split`` that is no share.
            FileError: for a file of another form.
        """
        if not 0 <= checks.number("test_split", test_split) < 1:
            checks.wrong_value("test_split", "a number from 0 to below 1", test_split)
        x, y = from_file_or_drawn("boston_housing", path, _file, lambda: drawn_houses(506, seed=7))
        order = np.arange(len(x))
        np.random.RandomState(checks.whole("seed", seed)).shuffle(order)  # as Keras does
        x, y = x[order], y[order]
        first = int(len(x) * (1 - test_split))
        return (x[:first], y[:first]), (x[first:], y[first:])
