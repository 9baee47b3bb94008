"""The import of TensorFlow: its settings, what is said where it cannot be had, and that nothing else imports it."""

import os
import sys
from types import ModuleType

import pytest

from ipusim.base.errors import MissingPackageError, ProgramStateError
from ipusim.ipu.graph import tensorflow_import


@pytest.fixture(autouse=True)
def _not_imported_yet(monkeypatch):
    """Forget that another test of this process has imported TensorFlow."""
    monkeypatch.setattr(tensorflow_import, "_IMPORTED", [])


def test_a_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(tensorflow_import.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"^programs need TensorFlow .*: pip install -e '\.\[tensorflow\]'$"):
        tensorflow_import.load()


def test_a_python_without_wheels_is_told_which_have_some(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(tensorflow_import.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    with pytest.raises(MissingPackageError, match=r"Python 3\.14 has no wheels of: take Python 3\.11, 3\.12 or 3\.13"):
        tensorflow_import.load()


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
