"""Imports of a program that imports ipusim.ipu first, or installs them, and of the process behind them."""

import builtins
import importlib
import subprocess
import sys

import pytest

from ipusim import ipu
from ipusim.base.errors import OptionError
from ipusim.ipu.imports.own_modules import VERSIONS
from tests.programs import needs_tensorflow


def ran(text, **given):
    """Run a program's text with the names installed, and return its variables."""
    needs_tensorflow()
    namespace = {"__name__": "__main__", "__file__": "program.py"}
    with ipu.install(**given):
        exec(text, namespace)
    return namespace


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_that_is_chosen_is_told(version):
    found = ran("import tensorflow as tf\nfound = tf.__version__, tf.executing_eagerly()", tensorflow=version)["found"]
    assert found == (VERSIONS[version], version == 2)


@pytest.mark.parametrize(
    "text",
    [
        "from tensorflow.python.ipu.config import IPUConfig as found",
        "import tensorflow.python.ipu.config as config; found = config.IPUConfig",
        "import importlib; found = importlib.import_module('tensorflow.python.ipu.config').IPUConfig",
        "from importlib import import_module; found = import_module('tensorflow.python.ipu').config.IPUConfig",
        "found = __import__('tensorflow.python.ipu.config', fromlist=['IPUConfig']).IPUConfig",
    ],
)
def test_every_form_of_import_finds_graphcores_name(text):
    assert ran(text, tensorflow=2)["found"].__module__ == "ipusim.ipu.config"


def test_imports_are_the_processs_own_behind_the_block():
    before = builtins.__import__, importlib.import_module
    ran("import tensorflow", tensorflow=2)
    assert (builtins.__import__, importlib.import_module) == before
    with pytest.raises(OptionError, match="expected 1 or 2, got 3"):
        ipu.install(tensorflow=3)
    assert (builtins.__import__, importlib.import_module) == before


def test_the_package_costs_nothing_until_a_program_imports_tensorflow():
    """A process that is no program's keeps its own imports."""
    code = (
        "import builtins, sys\nown = builtins.__import__\nimport ipusim.ipu\n"
        "print(builtins.__import__ is own, 'numpy' in sys.modules, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False False\n"
