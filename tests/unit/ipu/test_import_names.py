"""Imports of a program that imports ipusim.ipu first, or installs them, and the import of TensorFlow behind them."""

import builtins
import importlib
import os
import subprocess
import sys
from types import ModuleType

import pytest

from ipusim import ipu
from ipusim.base.errors import MissingPackageError, OptionError, ProgramStateError
from ipusim.ipu.graph import tensorflow_import
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


def test_a_program_on_standard_input_is_hosted():
    text = "import ipusim.ipu, tensorflow\nprint(tensorflow.__version__)"
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout == f"{VERSIONS[2]}\n"


@pytest.fixture
def _not_imported_yet(monkeypatch):
    """Forget that another test of this process has imported TensorFlow."""
    monkeypatch.setattr(tensorflow_import, "_IMPORTED", [])


@pytest.mark.usefixtures("_not_imported_yet")
@pytest.mark.parametrize(
    ("version", "text"),
    [
        (sys.version_info, r"^programs need TensorFlow .*: pip install -e '\.\[tensorflow\]'$"),
        ((3, 14, 0), r"Python 3\.14 has no wheels of: take Python 3\.11, 3\.12 or 3\.13"),
    ],
    ids=["a missing extra", "a Python without wheels"],
)
def test_without_tensorflow_it_is_said_what_to_install(monkeypatch, version, text):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(tensorflow_import.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(MissingPackageError, match=text):
        tensorflow_import.load()


@pytest.mark.usefixtures("_not_imported_yet")
@pytest.mark.parametrize("name", tensorflow_import.SETTINGS)
def test_a_tensorflow_of_other_settings_is_refused(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    for setting, value in tensorflow_import.SETTINGS.items():
        monkeypatch.setenv(setting, value)
    assert tensorflow_import.load() is sys.modules["tensorflow"]
    monkeypatch.delenv(name)
    with pytest.raises(ProgramStateError, match=r"write import ipusim\.ipu above the first import of tensorflow"):
        tensorflow_import.load()


def test_lines_of_others_on_the_standard_error_stay(capfd):
    with tensorflow_import._without_log_lines():
        os.write(2, b"I0000 00:00:1795894618.319192   12022 cudart_stub.cc:31] no GPU\nmine\n")
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
        print("of Python", file=sys.stderr)
    assert sorted(capfd.readouterr().err.splitlines()) == ["mine", "of Python"]
