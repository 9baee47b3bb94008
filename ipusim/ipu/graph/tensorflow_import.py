"""Import TensorFlow, the host for programs, with fixed environment variables."""

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

#: Environment variables for TensorFlow's import. tf_keras becomes Keras. Without oneDNN and GPUs, a program gives the
#: same bytes on any machine. The log shows errors only.
SETTINGS: Final = {
    "TF_USE_LEGACY_KERAS": "1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
#: First Python version without TensorFlow 2.21 wheels.
_FIRST_WITHOUT_WHEELS: Final = (3, 14)
#: Log lines that TensorFlow's libraries write before the log level applies.
_LOG_LINE: Final = re.compile(r"[IW]\d{4} \d\d:\d\d:\d\d|[IW]0000 00:00:|WARNING: All log messages before absl")
#: File descriptor.
_STANDARD_ERROR: Final = 2
#: TensorFlow's module, after :func:`load` has imported it.
_IMPORTED: Final[list[Any]] = []


def load() -> Any:
    """Import TensorFlow under ipusim's environment variables.

    Returns:
        The module ``tensorflow``.

    Raises:
        MissingPackageError: if TensorFlow is not installed; the message names the command, or supported Pythons.
        ProgramStateError: if a program imported TensorFlow earlier under different environment variables.
    """
    if _IMPORTED:  # later changes of the environment by a program do not matter
        return _IMPORTED[0]
    if "tensorflow" in sys.modules:
        _check_settings()
        _exclude_from_autograph()
        return sys.modules["tensorflow"]
    if util.find_spec("tensorflow") is None or util.find_spec("tf_keras") is None:
        raise MissingPackageError(_missing_message())
    os.environ.update(SETTINGS)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # Autograph and Keras pass errors with these attributes through, instead of wrapping them in long messages.
    for name in ("ag_pass_through", "_keras_call_info_injected"):
        setattr(IpusimError, name, True)
    with _without_log_lines():
        _IMPORTED.append(import_module("tensorflow"))
    _exclude_from_autograph()
    return _IMPORTED[0]


def _exclude_from_autograph() -> None:
    """Stop AutoGraph from converting functions of ipusim, like functions of TensorFlow.

    Otherwise AutoGraph converts the whole call tree below ``pipeline``, in several seconds.
    """
    package = sys.modules["ipusim"]
    config: Any = import_module("tensorflow.python.autograph.core.config")
    if all(rule.get_action(package) != config.Action.DO_NOT_CONVERT for rule in config.CONVERSION_RULES):
        config.CONVERSION_RULES = (*config.CONVERSION_RULES, config.DoNotConvert("ipusim"))


def check_first() -> None:
    """Raise ProgramStateError if a program imported TensorFlow earlier under different environment variables."""
    if not _IMPORTED and "tensorflow" in sys.modules:
        _check_settings()


def _check_settings() -> None:
    """Raise ProgramStateError if TensorFlow's import saw different environment variables."""
    wrong = [f"{name}={value}" for name, value in SETTINGS.items() if os.environ.get(name) != value]
    if wrong:
        raise ProgramStateError(
            "TensorFlow was imported before ipusim.ipu, which sets what TensorFlow reads at its import: write "
            "import ipusim.ipu above the first import of tensorflow"
        )


def _missing_message() -> str:
    if sys.version_info >= _FIRST_WITHOUT_WHEELS:
        version = ".".join(map(str, sys.version_info[:2]))
        return (
            f"programs need TensorFlow 2.21, which Python {version} has no wheels of: take Python 3.11, 3.12 or 3.13, "
            "and pip install -e '.[tensorflow]'"
        )
    return "programs need TensorFlow and tf_keras 2.21: pip install -e '.[tensorflow]'"


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """Remove TensorFlow's log lines from the standard error output of a block."""
    sys.stderr.flush()
    descriptor = os.dup(_STANDARD_ERROR)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(descriptor, _STANDARD_ERROR)
            os.close(descriptor)
            log.seek(0)
            for line in log.read().decode(errors="replace").splitlines():
                if not _LOG_LINE.match(line):
                    print(line, file=sys.stderr)
