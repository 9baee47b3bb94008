"""A fixture for the tests of the Python front door: a small pipeline."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def run():
    """Return a function that runs a small pipeline, but for its arguments; a value of ... leaves one out."""
    from ipusim.ipu import get_variable  # noqa: PLC0415 - autograd takes a while to import
    from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat  # noqa: PLC0415
    from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue  # noqa: PLC0415
    from ipusim.ipu.pipelining_ops import pipeline  # noqa: PLC0415

    def small(**arguments):
        given = {
            "computational_stages": [lambda x: x * get_variable("w", 1.0), lambda x: x],
            "gradient_accumulation_count": 8,
            "infeed_queue": IPUInfeedQueue(repeat([np.ones(2, np.float32)])),
            "outfeed_queue": IPUOutfeedQueue(),
        } | arguments
        return pipeline(**{name: value for name, value in given.items() if value is not ...})

    return small
