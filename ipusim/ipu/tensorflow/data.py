"""``tf.data``: datasets."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import offering

#: As many as TensorFlow finds best; here what is prepared ahead takes no simulated time.
AUTOTUNE: Final = -1


class experimental:  # noqa: N801 - TensorFlow's name of a module
    """What programs use of ``tf.data.experimental``."""

    AUTOTUNE: Final = AUTOTUNE


__getattr__, __dir__ = offering("tf.data", {"Dataset": "ipusim.ipu.dataset:Dataset"})
