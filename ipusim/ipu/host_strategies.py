"""Strategies in whose scope programs train on several simulated hosts: by Horovod, by PopDist, or of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Self

from ipusim.api import machine
from ipusim.base.errors import ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_strategy import IPUStrategyV1
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import builds_program
from ipusim.ipu.runtime.distribute import TFConfigClusterResolver, reduce_op_of
from ipusim.ipu.runtime.host_strategy import averages, in_scope_of, replicas_in_sync, variables_on_host
from ipusim.ipu.runtime.hosts import rank, size
from ipusim.ipu.traced.host_collectives import reduced

tf = load()
_OPTIMIZER: Final = tf.compat.v1.train.Optimizer


class HostStrategy(IPUStrategyV1):
    """A strategy in whose scope programs train on several simulated hosts, each on its device and its data.

    Before each weight update gradients are summed up over the hosts, so that a loss is to be divided by the batch of
    all of them, as ``tf.nn.compute_average_loss`` does; an estimator that is given the strategy divides the sum by the
    hosts. Before its first run a program that trains takes the variables of the first host. On one host it changes
    nothing.

    Attributes:
        over_links: whether gradients are summed up over the links between IPUs, and not over the hosts' network.
    """

    over_links: ClassVar[bool] = False

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False) -> None:
        """Take the device.

        Args:
            ipu_device: the device of each host that programs and queues of the scope are for.
            variables_on_host: whether the host has the variables: a loop's body enqueues gradients, and
                apply_gradients is called on the host.
        """
        super().__init__(ipu_device)
        self.variables_on_host = checks.truth("variables_on_host", variables_on_host)

    @property
    def num_replicas_in_sync(self) -> int:
        """The hosts over which gradients are summed up."""
        return machine.host_count()

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """Be the strategy of the block; raises ProgramStateError in the scope of another."""
        with in_scope_of(self), super().scope(), _updates_on_host():
            yield self

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function in the strategy's scope; raises ProgramTypeError for what is no function."""
        with in_scope_of(self):
            return super().run(fn, args, kwargs)

    experimental_run_v2 = run

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """Return the sum or the mean of a value over all hosts.

        Args:
            reduce_op: the operation.
            value: this host's value.
            axis: an axis of it to reduce as well.

        Raises:
            ProgramTypeError: for what is no operation or no number.
            ProgramError: for another axis, and as ``horovod.allreduce`` does.
        """
        mean = reduce_op_of("reduce_op", reduce_op) is tf.distribute.ReduceOp.MEAN
        if not tf.is_tensor(value):
            checks.numbers("value", value)
        tensor = tf.convert_to_tensor(value)
        if axis is None:
            return reduced("strategy.reduce", tensor, "average" if mean else "sum")
        along = checks.integer("axis", axis)
        if tensor.shape.rank is not None and not -tensor.shape.rank <= along < tensor.shape.rank:
            checks.wrong_value("axis", f"one of the {tensor.shape.rank} axes of the value", along)
        total = reduced("strategy.reduce", tf.reduce_sum(tensor, along), "sum")
        if not mean:
            return total
        return total / reduced("strategy.reduce", tf.cast(tf.shape(tensor)[along], tensor.dtype), "sum")

    def update_config_proto(self, config_proto: Any) -> Any:
        """Return a session's configuration as it is: hosts need no servers."""
        return config_proto


class IPUHorovodStrategy(HostStrategy):
    """The strategy that sums gradients up by Horovod, over the network of the hosts."""


class IPUMultiReplicaStrategy(HostStrategy):
    """The strategy of PopDist and PopRun, for hosts whose devices are parts of one machine.

    Before each weight update the IPUs of all hosts that hold the same sum their gradients up as replicas do, without
    the hosts. First variables are broadcast, and values reduced, over the hosts' network.
    """

    over_links: ClassVar[bool] = True

    def __init__(self, ipu_device: str = "/device:IPU:0", add_ipu_cross_replica_reductions: bool = True) -> None:
        """Check the arguments.

        Args:
            ipu_device: the device of each host that programs and queues of the scope are for.
            add_ipu_cross_replica_reductions: without effect: programs that train reduce their gradients by themselves.
        """
        super().__init__(ipu_device)
        checks.truth("add_ipu_cross_replica_reductions", add_ipu_cross_replica_reductions)

    def update_ipu_config(self, config: IPUConfig) -> IPUConfig:
        """Say in a configuration how many hosts there are and which this is; raises ProgramTypeError for another."""
        if not isinstance(config, IPUConfig):
            raise ProgramTypeError(f"`config` must be an IPUConfig object, got {type(config)}.")
        config.experimental.multi_replica_distribution.process_count = size()
        config.experimental.multi_replica_distribution.process_index = rank()
        return config


class PopDistStrategy(IPUMultiReplicaStrategy):
    """The strategy of PopDist and PopRun by its later name."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        """Check the arguments; see :class:`IPUMultiReplicaStrategy`.

        ``enable_dataset_iterators`` and ``enable_keras_extensions`` have no effect: both are always there.
        """
        super().__init__(ipu_device, add_ipu_cross_replica_reductions)
        checks.truth("enable_dataset_iterators", enable_dataset_iterators)
        checks.truth("enable_keras_extensions", enable_keras_extensions)


class IPUMultiWorkerStrategy(HostStrategy):
    """The strategy of a cluster of TensorFlow's, whose workers are simulated hosts.

    Attributes:
        cluster_resolver: the cluster.
    """

    def __init__(
        self,
        cluster_resolver: TFConfigClusterResolver,
        ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ) -> None:
        """Check the arguments; see :class:`HostStrategy`. Raises ProgramTypeError for another ``cluster_resolver``."""
        expected = "a tf.distribute.cluster_resolver.TFConfigClusterResolver"
        checks.instance("cluster_resolver", cluster_resolver, TFConfigClusterResolver, expected)
        super().__init__(ipu_device, variables_on_host)
        self.cluster_resolver = cluster_resolver


#: The name of version 1, as Graphcore's last release has it.
IPUMultiWorkerStrategyV1: Final = IPUMultiWorkerStrategy


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None) -> Any:
    """Return the sum of losses over the batch of all hosts: ``tf.nn.compute_average_loss`` in a strategy's scope.

    Args:
        per_example_loss: of this host's batch.
        sample_weight: of each example.
        global_batch_size: that of all hosts, by default this host's times the hosts.
    """
    losses = tf.convert_to_tensor(per_example_loss)
    if sample_weight is not None:
        losses *= tf.cast(sample_weight, losses.dtype)
    if global_batch_size is None:
        global_batch_size = (losses.shape[0] if losses.shape.rank else 1) * replicas_in_sync()
    return tf.reduce_sum(losses) / tf.cast(global_batch_size, losses.dtype)


@contextmanager
def _updates_on_host() -> Iterator[None]:
    """Reduce gradients over the hosts where the host applies them, in a scope whose variables are on the host."""
    apply = _OPTIMIZER.apply_gradients
    if not variables_on_host():
        yield
        return

    def summed(optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if builds_program():
            raise UnsupportedProgramError(
                "variables_on_host: expected apply_gradients on the host, with the gradients that the body of a loop "
                "enqueues, got it in a body"
            )
        if machine.this_host() is None:
            return apply(optimizer, grads_and_vars, *args, **kwargs)
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        operation = "average" if averages() else "sum"
        total = [(reduced("apply_gradients", gradient, operation), variable) for gradient, variable in pairs]
        return apply(optimizer, total, *args, **kwargs)

    _OPTIMIZER.apply_gradients = summed
    try:
        yield
    finally:
        _OPTIMIZER.apply_gradients = apply
