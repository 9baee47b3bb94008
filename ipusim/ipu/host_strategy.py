"""What the strategies of several hosts have in common: their scope, what runs in it, and values that hosts reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np

from ipusim.ipu import checks
from ipusim.ipu.distribution import in_scope_of
from ipusim.ipu.host import Fetch, example
from ipusim.ipu.host_values import reduced
from ipusim.ipu.ipu_strategy import IPUStrategyV1
from ipusim.ipu.reduce_op import ReduceOp, reduce_op_of
from ipusim.machine.hosts import host_count


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
        return host_count()

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """Be the strategy of the block; raises ProgramStateError in the scope of another."""
        with in_scope_of(self), super().scope():
            yield self

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function in the scope; raises ProgramTypeError for what is no function."""
        with in_scope_of(self):
            return super().run(fn, args, kwargs)

    experimental_run_v2 = run

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: int | None = None) -> Any:
        """Return the sum or the mean of a value over all hosts, along an ``axis`` of it too where one is given.

        A tensor of a session gives one; anything else is reduced at once, when all hosts have come here. Raises
        ProgramTypeError for what is no operation or no number, ProgramError as ``horovod.allreduce`` does.
        """
        operation = reduce_op_of("reduce_op", reduce_op)
        found = value if isinstance(value, Fetch) else checks.numbers("value", value)
        along = None if axis is None else checks.integer("axis", axis)
        if along is None:
            return reduced("strategy.reduce", found, "sum" if operation is ReduceOp.SUM else "average")
        if isinstance(tried := example(found), np.ndarray) and not -tried.ndim <= along < tried.ndim:
            checks.wrong_value("axis", f"one of the {tried.ndim} axes of the value", along)
        total = reduced("strategy.reduce", found, "sum", lambda array: array.sum(along, array.dtype))
        if operation is ReduceOp.SUM:
            return total
        length = reduced("strategy.reduce", found, "sum", lambda array: np.asarray(array.shape[along], array.dtype))
        return total / length

    def update_config_proto(self, config_proto: Any) -> Any:
        """Return a session's configuration as it is: hosts are simulated in this process."""
        return config_proto
