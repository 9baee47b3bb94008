"""What compute_gradients returns while the machine runs: one variable's gradient of a micro-batch, and its place.

In TensorFlow an optimizer is given all gradients of the graph. In a pipeline those of a micro-batch become known
stage by stage, at different times: where one is known, the others stand as objects that take part in any arithmetic
and give nothing. What an optimizer makes of each gradient by itself is so computed, and what it makes of several at
once is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu.optimizers.variable import Pair


class UnknownGradient(NDArrayOperatorsMixin):
    """The gradient of a variable of which another's is known; whatever is computed from it is unknown as well."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Take the variable's shape and dtype, which may be asked for."""
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)

    def __array_ufunc__(self, *_: Any, **__: Any) -> UnknownGradient:
        """Return itself for any of NumPy's operations on elements."""
        return self

    def __array_function__(self, *_: Any, **__: Any) -> UnknownGradient:
        """Return itself for any other function of NumPy's."""
        return self

    def astype(self, dtype: Any, *_: Any, **__: Any) -> UnknownGradient:
        """Return itself in another dtype."""
        return UnknownGradient(self.shape, np.dtype(dtype))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        refuse_several()

    __array__ = __float__ = __int__ = __bool__ = __iter__ = __len__ = _refuse


def refuse_several() -> NoReturn:
    """Raise UnsupportedProgramError for what an optimizer makes of several gradients of one micro-batch."""
    raise UnsupportedProgramError(
        "compute_gradients: expected each variable's gradient to be computed by itself, as those of a micro-batch "
        "become known stage by stage: compute what takes several, such as a global norm, in apply_gradients"
    )


#: The pairs of the micro-batch whose gradient is being computed.
_KNOWN: Final[ContextVar[Sequence[Pair] | None]] = ContextVar("known", default=None)


@contextmanager
def knowing(pairs: Sequence[Pair]) -> Iterator[None]:
    """Let compute_gradients return ``pairs`` in the block."""
    token = _KNOWN.set(pairs)
    try:
        yield
    finally:
        _KNOWN.reset(token)


def known() -> Sequence[Pair] | None:
    """Return the pairs of the block that the caller is in; None outside of one."""
    return _KNOWN.get()
