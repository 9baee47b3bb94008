"""Variables that a stage's function asks for by name while it runs.

The function calls :func:`get_variable`; its caller says, for as long as the call
lasts, what such a name stands for. Outside of a stage there is none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import ModelError
from ipusim.model.functions.surrounded import Surrounded, surroundings
from ipusim.model.layers.layer import Array, Key


def noting(note: Callable[[str, Any], object]) -> Surrounded:
    """Return a block that calls ``note`` with each variable that is asked for in it: its name, and what was answered.

    Outside of a stage nothing is noted.
    """
    lookup = surroundings().lookup

    def answer(name: str, initial: Array) -> Any:
        assert lookup is not None
        variable = lookup(name, initial)
        note(name, variable)
        return variable

    return Surrounded(lookup=lookup and answer)


def draw_key(name: str | int) -> Key | None:
    """Return the seed of a layer's draws, by its name or position, in the pass that is running, if it draws."""
    key = surroundings().key
    return None if key is None else (*key, name if isinstance(name, int) else zlib.crc32(name.encode()))


class Readable:
    """A readable stand-in for a variable; arrays of a trace read its value."""

    def read_value(self) -> Any:
        """Return the value that the caller computes with."""
        raise NotImplementedError


def check_inside(name: str) -> None:
    """Refuse to ask for the variable ``name`` outside of a running stage, and of a graph; raises ModelError."""
    if surroundings().lookup is None and surroundings().lookup_outside is None:
        raise ModelError(f"get_variable({name!r}) was called outside of a pipeline stage: call it inside its function")


def get_variable(name: str, initial: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Any:
    """Return the variable called ``name`` of the pipeline whose stage is running.

    Args:
        name: the same name in several stages is one variable, which is legal only on one IPU.
        initial: its value before the first execution of the pipeline; the first stage that asks decides.
        dtype: its type: by default that of ``initial``, and float32 for Python's own numbers, as in TensorFlow.

    Raises ModelError outside of a stage, for what is no name, array of numbers or dtype, and for a type that is not
    floating-point.
    """
    if not isinstance(name, str) or not name:
        raise ModelError(f"get_variable: expected a name for the variable, got {name!r}")
    check_inside(name)
    lookup = surroundings().lookup or surroundings().lookup_outside
    assert lookup is not None
    if dtype is None and type(initial) is np.ndarray and initial.dtype.kind == "f":
        return lookup(name, initial)  # what follows has nothing to say: layers ask in every call
    if dtype is None and not isinstance(initial, np.ndarray | np.generic):
        dtype = np.float32
    try:
        numpy_dtype = None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError):
        raise ModelError(f"variable {name!r}: expected a dtype such as numpy.float32, got {dtype!r}") from None
    if numpy_dtype is not None and numpy_dtype.kind != "f":
        raise ModelError(f"variable {name!r}: expected a floating-point dtype such as float32, got {dtype!r}")
    value = None
    with suppress(TypeError, ValueError):  # texts, rows of different lengths
        if np.asarray(initial).dtype.kind in "biuf":
            value = np.array(initial, numpy_dtype)
    if value is None:
        raise ModelError(f"variable {name!r}: expected an array of numbers to begin with, got {initial!r}")
    if value.dtype.kind != "f":
        raise ModelError(f"variable {name!r}: expected a floating-point dtype such as float32, got {value.dtype}")
    return lookup(name, value)
