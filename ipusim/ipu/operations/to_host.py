"""The operation by which a stage sends tensors to the host, where traces see it and autograd hands their values on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from autograd.extend import defvjp_argnums, primitive

from ipusim.model.layers.layer import Array


@primitive  # type: ignore[untyped-decorator]
def send(receive: Callable[[tuple[Array, ...]], None], *values: Any) -> Any:
    """Give copies of the values to ``receive``; nothing uses the result."""
    receive(tuple(np.array(each) for each in values))
    return np.zeros((), np.float32)


def _nothing_back(*_: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return the gradient, which is never asked for as nothing uses the result."""
    return lambda _: ()


defvjp_argnums(send, _nothing_back)
