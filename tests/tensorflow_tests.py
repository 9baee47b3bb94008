"""What tests of programs share: they skip with a reason where TensorFlow is not installed.

Where ``IPUSIM_TENSORFLOW=required`` is set, as .ci/run does, they fail instead.
"""

from __future__ import annotations

import os
from importlib import util

import pytest


def needs_tensorflow(*, at_import=False):
    """Skip the test that runs, or fail it where TensorFlow is required, unless TensorFlow and tf_keras are there.

    With ``at_import`` it is all tests of the module that is imported.
    """
    missing = [name for name in ("tensorflow", "tf_keras") if util.find_spec(name) is None]
    if missing and os.environ.get("IPUSIM_TENSORFLOW") == "required":
        pytest.fail(f"tests of programs are required here: {' and '.join(missing)} is not installed")
    if missing:
        pytest.skip(
            f"{' and '.join(missing)} is not installed: pip install -e '.[tensorflow]'", allow_module_level=at_import
        )
