"""Tests of kernels need TensorFlow; they skip with the reason where it is not installed.

Where ``IPUSIM_TENSORFLOW=required`` is set, as .ci/run does, they fail instead.
"""

from importlib import import_module

import pytest

from tests.programs import needs_tensorflow


@pytest.fixture(autouse=True)
def _tensorflow():
    needs_tensorflow()
    import_module("ipusim.ipu.graph.kernels")  # registers all kernels
