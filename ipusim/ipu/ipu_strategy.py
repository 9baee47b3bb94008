"""The strategy of Graphcore's TensorFlow 2: its scope, and what runs in it at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.device_ordinal import all_on_device, ipu_ordinal
from ipusim.ipu.function import Function, Same
from ipusim.ipu.function_body import calling
from ipusim.ipu.loop_body import check_call, check_takes


class IPUStrategyV1:
    """Runs functions whose loops and pipelines run when they are called.

    Arguments:
        ipu_device: the device that programs and queues of its scope are for.
        add_ipu_cross_replica_reductions, enable_dataset_iterators, enable_keras_extensions: without effect.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        """Check the arguments."""
        self._ordinal = ipu_ordinal("ipu_device", ipu_device)
        checks.truth("add_ipu_cross_replica_reductions", add_ipu_cross_replica_reductions)
        checks.truth("enable_dataset_iterators", enable_dataset_iterators)
        checks.truth("enable_keras_extensions", enable_keras_extensions)
        self._functions: dict[Hashable, Function] = {}

    @contextmanager
    def scope(self) -> Iterator[IPUStrategyV1]:
        """Be the strategy of the block, in which what ``tf.function`` has made is run as :meth:`run` does."""
        with all_on_device(self._ordinal), calling(device=True):
            yield self

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function, whose programs run at once; a loop over ``tf.range`` in it is one.

        That goes on when the function is called again. Raises ProgramTypeError for what is no function, or does not
        take the arguments, and as programs do.
        """
        named = check_call("fn", fn, args, kwargs)
        check_takes("fn", fn, args, named)
        found = fn if isinstance(fn, Function) else self._functions.setdefault(_key(fn), Function(fn))
        with all_on_device(self._ordinal), calling(device=True):
            return found(*args, **named)


def _key(function: Callable[..., Any]) -> Hashable:
    """Return what a function is known by: itself, or its identity where it is an object without a hash."""
    try:
        hash(function)
    except TypeError:
        return Same(function)
    return function


IPUStrategy = IPUStrategyV1
