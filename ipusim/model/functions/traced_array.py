"""Arrays under a trace, which refuse plain NumPy functions: no gradient would flow back through these.

autograd's own arrays let themselves be taken apart: ``numpy.maximum(x, 0)`` gave an array of objects, ``numpy.dot``
one of thousands, and a pipeline whose stages before never learned.
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

#: What Python's own operators call when a plain array is on their left.
_OPERATORS: Final = frozenset(
    {np.add, np.subtract, np.multiply, np.divide, np.remainder, np.power, np.matmul}
    | {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal}
)
#: Functions of an array's form alone, whose results have no gradient.
_OF_THE_FORM: Final = frozenset(
    {np.shape, np.ndim, np.size, np.result_type, np.zeros_like, np.ones_like, np.empty_like}
)
#: Packages that may look into a traced array.
_INNER: Final = frozenset({"autograd", "ipusim"})

_REMEDY: Final = "write it with autograd.numpy, as in `import autograd.numpy as np`"


class TracedArray(ArrayBox):  # type: ignore[misc]
    """autograd's array, which raises UntraceableError for any use that would leave the trace."""

    __slots__ = ()

    def _unboxed(self) -> Any:
        frame = sys._getframe(1)
        while frame.f_code is getval.__code__ and frame.f_back is not None:
            frame = frame.f_back
        if package_of(frame) not in _INNER:
            _refuse(
                "its value, as getval returns it,",
                "compute with the array itself; to stop a gradient, use an autograd primitive with a gradient of zero",
            )
        return Box._value.__get__(self)

    _value = property(_unboxed, Box._value.__set__)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Do what an operator asks for, and refuse any other call of a ufunc."""
        if "out" in options:
            _refuse(f"assignment in place, by {_name(ufunc)}", "assign the result to a new name")
        if method != "__call__" or ufunc not in _OPERATORS:
            _refuse(_name(ufunc) if method == "__call__" else f"{_name(ufunc)}.{method}")
        return getattr(anp, ufunc.__name__)(*inputs, **options)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, options: Any) -> Any:
        """Answer functions of the shape and type alone, and refuse any other function of arrays."""
        if function not in _OF_THE_FORM:
            _refuse(_name(function))
        return function(*map(getval, args), **options)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to become a plain array."""
        _refuse()

    def __float__(self) -> NoReturn:
        """Refuse to become a plain number, as functions of math ask for."""
        _refuse()

    __int__ = __complex__ = __float__

    def __copy__(self) -> TracedArray:
        """Return itself, which nothing can change."""
        return self

    def __deepcopy__(self, memory: Any) -> TracedArray:
        """Return itself."""
        return self

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what arrays of NumPy have and those of autograd have not, such as ``tolist``."""
        raise AttributeError(f"no {name!r} under a trace: write it with a function of autograd.numpy")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        """Refuse to be changed."""
        _refuse("assignment to elements", "build a new array, as with autograd.numpy.where")


TracedArray.__hash__ = ArrayBox.__hash__  # type: ignore[method-assign]
TracedArray.register(TracedArray)
for _scalar in (np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64):  # which are written down too, as by shards
    ArrayBox.register(_scalar)
_KINDS: Final = [kind for kind, box in Box.type_mappings.items() if box is ArrayBox and kind is not ArrayBox]


@contextmanager
def refusing_plain_numpy() -> Iterator[None]:
    """Make the arrays of traces in the block TracedArrays; whatever else uses autograd keeps its own."""
    before = {kind: Box.type_mappings[kind] for kind in _KINDS}
    Box.type_mappings.update(dict.fromkeys(_KINDS, TracedArray))
    try:
        yield
    finally:
        Box.type_mappings.update(before)


def _refuse(what: str = "", remedy: str = _REMEDY) -> NoReturn:
    """Raise UntraceableError for ``what`` a user's function did, or for what it is calling."""
    frame: FrameType = sys._getframe(1)
    while package_of(frame) in LIBRARIES and frame.f_back is not None:
        frame = frame.f_back
    what = what or _called(frame)
    raise UntraceableError(
        f"{what} ({frame.f_code.co_filename}:{frame.f_lineno}) takes an array out of the trace, and its result has no "
        f"gradient: {remedy}"
    )


def _name(function: Any) -> str:
    """Return a function's name with its module; a ufunc does not know its own, but NumPy has it or not."""
    module = "numpy" if getattr(np, function.__name__, None) is function else getattr(function, "__module__", None)
    return f"{module}.{function.__name__}" if module else str(function.__name__)


def _called(frame: FrameType) -> str:
    """Return the dotted name of what ``frame`` is calling, read off its code: no source is needed."""
    code = list(dis.get_instructions(frame.f_code))
    here = next(op for op in reversed(code) if op.offset <= frame.f_lasti)  # which may be inside its cache
    if here.opname in ("STORE_SUBSCR", "STORE_SLICE"):  # of a slice, from Python 3.12 on
        return "assignment to elements of a plain array"
    names = [
        op.argval
        for op in code
        if op.offset < here.offset
        and op.opname.startswith("LOAD_")
        and isinstance(op.argval, str)
        and op.positions is not None
        and here.positions is not None
        and op.positions.col_offset is not None
        and op.positions[::2] == here.positions[::2]  # it begins where the call does
    ]
    return ".".join(names) or "a conversion into a plain array or number"
