"""The strategy of Graphcore's TensorFlow 2: its scope, and what runs in it at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np

from ipusim.api import machine
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import check_call, check_takes
from ipusim.ipu.runtime.devices import all_on_device, ipu_ordinal
from ipusim.ipu.runtime.distribution import in_scope_of, reduced
from ipusim.ipu.runtime.function import Function, Same
from ipusim.ipu.runtime.function_body import calling
from ipusim.ipu.runtime.host import Fetch, example
from ipusim.ipu.runtime.pipeline_options import ReduceOp, reduce_op_of


class IPUStrategyV1:
    """Runs functions whose loops and pipelines run when they are called.

    Args:
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
        result = fn if isinstance(fn, Function) else self._functions.setdefault(_key(fn), Function(fn))
        with all_on_device(self._ordinal), calling(device=True):
            return result(*args, **named)


def _key(function: Callable[..., Any]) -> Hashable:
    """Return what a function is known by: itself, or its identity where it is an object without a hash."""
    try:
        hash(function)
    except TypeError:
        return Same(function)
    return function


IPUStrategy = IPUStrategyV1


class HostStrategy(IPUStrategyV1):
    """A strategy in whose scope programs train on several simulated hosts, each on its device and its data.

    Before each weight update gradients are summed up over the hosts, so that a loss is to be divided by the batch of
    all of them, as ``tf.nn.compute_average_loss`` does; an estimator that is given the strategy divides the sum by the
    hosts. Before its first run a program that trains takes the variables of the first host. On one host it changes
    nothing.
    """

    #: Whether gradients are summed up over the links between IPUs, and not over the hosts' network.
    over_links: ClassVar[bool] = False

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False) -> None:
        """Take the device, and whether the host has the variables and updates them."""
        super().__init__(ipu_device)
        self.variables_on_host = checks.truth("variables_on_host", variables_on_host)

    @property
    def num_replicas_in_sync(self) -> int:
        """The hosts over which gradients are summed up."""
        return machine.host_count()

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """Be the strategy of the block; raises ProgramStateError in the scope of another."""
        with in_scope_of(self), super().scope():
            yield self

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function in the strategy's scope; raises ProgramTypeError for what is no function."""
        with in_scope_of(self):
            return super().run(fn, args, kwargs)

    experimental_run_v2 = run

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: int | None = None) -> Any:
        """Return the sum or the mean of a value over all hosts, along an ``axis`` of it too where one is given.

        A tensor of a session gives one; anything else is reduced at once, when all hosts have come here. Raises
        ProgramTypeError for what is no operation or no number, ProgramError as ``horovod.allreduce`` does.
        """
        operation = reduce_op_of("reduce_op", reduce_op)
        result = value if isinstance(value, Fetch) else checks.numbers("value", value)
        along = None if axis is None else checks.integer("axis", axis)
        if along is None:
            return reduced("strategy.reduce", result, "sum" if operation is ReduceOp.SUM else "average")
        if isinstance(tried := example(result), np.ndarray) and not -tried.ndim <= along < tried.ndim:
            checks.wrong_value("axis", f"one of the {tried.ndim} axes of the value", along)
        total = reduced("strategy.reduce", result, "sum", lambda array: array.sum(along, array.dtype))
        if operation is ReduceOp.SUM:
            return total
        length = reduced("strategy.reduce", result, "sum", lambda array: np.asarray(array.shape[along], array.dtype))
        return total / length

    def update_config_proto(self, config_proto: Any) -> Any:
        """Return a session's configuration as it is: hosts are simulated in this process."""
        return config_proto
