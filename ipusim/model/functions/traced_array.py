"""Trace arrays, and refuse plain NumPy functions on them, which would cut the gradient.

autograd's arrays allow such calls: ``numpy.maximum(x, 0)`` returns an array of objects, ``numpy.dot`` an array of
thousands of objects. Neither passes a gradient back, so earlier stages of a pipeline would not learn.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

import autograd.numpy as anp
import numpy as np
from autograd.extend import Box
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.tracer import getval

from ipusim.base.errors import UntraceableError
from ipusim.model.functions.users_code import LIBRARIES, package_of

#: Ufuncs called by Python's operators with a plain array as left operand.
_OPERATORS: Final = frozenset(
    {np.add, np.subtract, np.multiply, np.divide, np.remainder, np.power, np.matmul}
    | {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal}
)
#: Functions of shape and type alone, without a gradient.
_SHAPE_FUNCTIONS: Final = frozenset(
    {np.shape, np.ndim, np.size, np.result_type, np.zeros_like, np.ones_like, np.empty_like}
)
#: Packages allowed to read a traced array's value.
_TRUSTED_PACKAGES: Final = frozenset({"autograd", "ipusim"})

_REMEDY: Final = "write it with autograd.numpy, as in `import autograd.numpy as np`"


class TracedArray(ArrayBox):  # type: ignore[misc]
    """autograd's array, with UntraceableError for uses that would leave the trace."""

    __slots__ = ()

    def _unboxed(self) -> Any:
        frame = sys._getframe(1)
        while frame.f_code is getval.__code__ and frame.f_back is not None:
            frame = frame.f_back
        if package_of(frame) not in _TRUSTED_PACKAGES:
            _refuse(
                "its value, as getval returns it,",
                "compute with the array itself; to stop a gradient, use an autograd primitive with a gradient of zero",
            )
        return Box._value.__get__(self)

    _value = property(_unboxed, Box._value.__set__)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Execute an operator's ufunc, and refuse other ufunc calls."""
        if "out" in options:
            _refuse(f"assignment in place, by {_name(ufunc)}", "assign the result to a new name")
        if method != "__call__" or ufunc not in _OPERATORS:
            _refuse(_name(ufunc) if method == "__call__" else f"{_name(ufunc)}.{method}")
        return getattr(anp, ufunc.__name__)(*inputs, **options)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, options: Any) -> Any:
        """Execute functions of shape and type, and refuse other array functions."""
        if function not in _SHAPE_FUNCTIONS:
            _refuse(_name(function))
        return function(*map(getval, args), **options)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse the conversion to a plain array."""
        _refuse()

    def __float__(self) -> NoReturn:
        """Refuse the conversion to a plain number, requested for example by math functions."""
        _refuse()

    __int__ = __complex__ = __float__

    def __copy__(self) -> TracedArray:
        """Return the same immutable array."""
        return self

    def __deepcopy__(self, memory: Any) -> TracedArray:
        """Return the same immutable array."""
        return self

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse NumPy attributes that autograd lacks, such as ``tolist``."""
        raise AttributeError(f"no {name!r} under a trace: write it with a function of autograd.numpy")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        """Refuse an assignment."""
        _refuse("assignment to elements", "build a new array, as with autograd.numpy.where")


TracedArray.__hash__ = ArrayBox.__hash__  # type: ignore[method-assign]
TracedArray.register(TracedArray)
# autograd itself only traces floating-point scalars; functions may also compute whole numbers and truth values.
for _scalar in (np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64):
    ArrayBox.register(_scalar)
_KINDS: Final = [kind for kind, box in Box.type_mappings.items() if box is ArrayBox and kind is not ArrayBox]


@contextmanager
def refusing_plain_numpy() -> Iterator[None]:
    """Use TracedArray for traces in the block; other users of autograd keep the original array class."""
    old_mappings = {kind: Box.type_mappings[kind] for kind in _KINDS}
    Box.type_mappings.update(dict.fromkeys(_KINDS, TracedArray))
    try:
        yield
    finally:
        Box.type_mappings.update(old_mappings)


def _refuse(action: str = "", remedy: str = _REMEDY) -> NoReturn:
    """Raise UntraceableError for an ``action`` of a user's function, or for its current call."""
    frame: FrameType = sys._getframe(1)
    while package_of(frame) in LIBRARIES and frame.f_back is not None:
        frame = frame.f_back
    action = action or _name_of_call(frame)
    raise UntraceableError(
        f"{action} ({frame.f_code.co_filename}:{frame.f_lineno}) takes an array out of the trace, and the result "
        f"has no gradient: {remedy}"
    )


def _name(function: Any) -> str:
    """Return a function's name with its module; for ufuncs, which have no module, NumPy is searched."""
    module = "numpy" if getattr(np, function.__name__, None) is function else getattr(function, "__module__", None)
    return f"{module}.{function.__name__}" if module else str(function.__name__)


def _name_of_call(frame: FrameType) -> str:
    """Return the dotted name of the function called by ``frame``, read from bytecode without source."""
    code = list(dis.get_instructions(frame.f_code))
    call = next(op for op in reversed(code) if op.offset <= frame.f_lasti)  # f_lasti may point into its inline cache
    if call.opname in ("STORE_SUBSCR", "STORE_SLICE"):  # slice assignment, from Python 3.12 on
        return "assignment to elements of a plain array"
    names = [
        op.argval
        for op in code
        if op.offset < call.offset
        and op.opname.startswith("LOAD_")
        and isinstance(op.argval, str)
        and op.positions is not None
        and call.positions is not None
        and op.positions.col_offset is not None
        and op.positions[::2] == call.positions[::2]  # same start as the call
    ]
    return ".".join(names) or "a conversion into a plain array or number"
