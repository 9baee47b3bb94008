"""The import of TensorFlow, the host of programs, with settings for the import."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, util
from typing import Any, Final

from ipusim.base.errors import IpusimError, MissingPackageError, ProgramStateError

#: Environment variables that TensorFlow reads at its import: tf_keras as Keras, no oneDNN and no GPU, so that the same
#: program gives the same bytes on any machine, and errors as the only lines of its log.
SETTINGS: Final = {
    "TF_USE_LEGACY_KERAS": "1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
#: First Python without wheels of TensorFlow 2.21.
_FIRST_WITHOUT_WHEELS: Final = (3, 14)
#: Lines of TensorFlow's libraries, which they write before its log level counts.
_LOG_LINE: Final = re.compile(r"[IW]\d{4} \d\d:\d\d:\d\d|[IW]0000 00:00:|WARNING: All log messages before absl")
_STANDARD_ERROR: Final = 2
#: TensorFlow, once it has been imported here.
_IMPORTED: Final[list[Any]] = []


def load() -> Any:
    """Import TensorFlow with ipusim's settings.

    Returns:
        The module ``tensorflow``.

    Raises:
        MissingPackageError: if TensorFlow is not installed; the message names the command, or supported Pythons.
        ProgramStateError: if a program has imported it before, with other settings.
    """
    if _IMPORTED:  # whatever a program has made of the environment since
        return _IMPORTED[0]
    if "tensorflow" in sys.modules:
        _check_settings()
        return sys.modules["tensorflow"]
    if util.find_spec("tensorflow") is None or util.find_spec("tf_keras") is None:
        raise MissingPackageError(_missing())
    os.environ.update(SETTINGS)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # Autograph and Keras leave such errors as they are, in place of errors with many lines.
    for name in ("ag_pass_through", "_keras_call_info_injected"):
        setattr(IpusimError, name, True)
    with _without_log_lines():
        _IMPORTED.append(import_module("tensorflow"))
    return _IMPORTED[0]


def check_first() -> None:
    """Raise ProgramStateError if a program has imported TensorFlow before, with other settings."""
    if not _IMPORTED and "tensorflow" in sys.modules:
        _check_settings()


def _check_settings() -> None:
    """Raise ProgramStateError for a TensorFlow whose import read other settings."""
    wrong = [f"{name}={value}" for name, value in SETTINGS.items() if os.environ.get(name) != value]
    if wrong:
        raise ProgramStateError(
            "TensorFlow was imported before ipusim.ipu, which sets what TensorFlow reads at its import: write "
            "import ipusim.ipu above the first import of tensorflow"
        )


def _missing() -> str:
    if sys.version_info >= _FIRST_WITHOUT_WHEELS:
        version = ".".join(map(str, sys.version_info[:2]))
        return (
            f"programs need TensorFlow 2.21, which Python {version} has no wheels of: take Python 3.11, 3.12 or 3.13, "
            "and pip install -e '.[tensorflow]'"
        )
    return "programs need TensorFlow and tf_keras 2.21: pip install -e '.[tensorflow]'"


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """Leave TensorFlow's log lines out of what libraries write to the standard error meanwhile."""
    sys.stderr.flush()
    kept = os.dup(_STANDARD_ERROR)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, _STANDARD_ERROR)
            os.close(kept)
            written.seek(0)
            for line in written.read().decode(errors="replace").splitlines():
                if not _LOG_LINE.match(line):
                    print(line, file=sys.stderr)
