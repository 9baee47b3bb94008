"""``tf.logging``: the logger of TensorFlow's name, and how much of what it is told it prints."""

from __future__ import annotations

import logging
from typing import Any, Final

from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.session import get_logger

DEBUG: Final = logging.DEBUG
INFO: Final = logging.INFO
WARN: Final = logging.WARNING
ERROR: Final = logging.ERROR
FATAL: Final = logging.FATAL


def set_verbosity(v: int) -> None:
    """Print what is at least as important as ``v``, as TensorFlow does, unless the program has set up logging."""
    logger = get_logger()
    logger.setLevel(checks.integer("v", v))
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        logger.addHandler(handler)


def get_verbosity() -> int:
    """Return the least level of the messages that are shown."""
    return get_logger().getEffectiveLevel()


def debug(msg: str, *args: Any) -> None:
    """Log a message that helps to find a fault."""
    get_logger().debug(msg, *args)


def info(msg: str, *args: Any) -> None:
    """Log how things go."""
    get_logger().info(msg, *args)


def warning(msg: str, *args: Any) -> None:
    """Log what may be wrong."""
    get_logger().warning(msg, *args)


warn = warning


def error(msg: str, *args: Any) -> None:
    """Log what is wrong."""
    get_logger().error(msg, *args)
