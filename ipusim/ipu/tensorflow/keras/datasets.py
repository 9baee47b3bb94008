"""``tf.keras.datasets``: a person's own files where Keras keeps them, else drawn ones of the same form.

Nothing is loaded over a network. ``synthetic`` draws what a scenario's ``type: synthetic`` draws.
"""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import found_in, offering

_HERE: Final = "ipusim.ipu.tensorflow.keras"

__getattr__, __dir__ = offering(
    "tf.keras.datasets",
    found_in(f"{_HERE}.image_datasets", "cifar10 cifar100 fashion_mnist mnist")
    | found_in(f"{_HERE}.text_datasets", "imdb reuters")
    | found_in(f"{_HERE}.house_dataset", "boston_housing")
    | {"synthetic": "ipusim.ipu.tensorflow.synthetic"},
)
