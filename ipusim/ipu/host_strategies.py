"""Distribute training over simulated hosts: with Horovod, with PopDist, in a TensorFlow cluster."""

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
from ipusim.ipu.runtime.context import replaced
from ipusim.ipu.runtime.devices import builds_program
from ipusim.ipu.runtime.distribute import TFConfigClusterResolver, reduce_op_of
from ipusim.ipu.runtime.host_strategy import averages, in_scope_of, replicas_in_sync, variables_on_host
from ipusim.ipu.runtime.hosts import rank, size
from ipusim.ipu.traced.host_collectives import reduced

tf = load()
_OPTIMIZER: Final = tf.compat.v1.train.Optimizer


class HostStrategy(IPUStrategyV1):
    """Strategy for training on several simulated hosts; every host has a separate device and separate data.

    Before a weight update, hosts sum their gradients. A program therefore divides its loss by the batch of all hosts,
    as ``tf.nn.compute_average_loss`` does; an estimator with the strategy divides the sum by the number of hosts.
    Before the first run, a training program copies the variables of the first host. On a single host the strategy
    changes nothing.

    Attributes:
        over_links: whether gradients are summed over the links between IPUs, not over the hosts' network.
    """

    over_links: ClassVar[bool] = False

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False) -> None:
        """Check the arguments.

        Args:
            ipu_device: device of a host for programs and queues of the scope.
            variables_on_host: whether the host holds the variables: a loop's body enqueues gradients, and the host
                calls apply_gradients.
        """
        super().__init__(ipu_device)
        self.variables_on_host = checks.truth("variables_on_host", variables_on_host)

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of hosts whose gradients are summed."""
        return machine.host_count()

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """Activate the strategy in the block; raises ProgramStateError inside another strategy's scope."""
        with in_scope_of(self), super().scope(), _updates_on_host():
            yield self

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function in the strategy's scope; raises ProgramTypeError if fn is not a function."""
        with in_scope_of(self):
            return super().run(fn, args, kwargs)

    experimental_run_v2 = run

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """Reduce a value over all hosts to the sum or the mean.

        Args:
            reduce_op: sum or mean, a ``tf.distribute.ReduceOp``.
            value: this host's value.
            axis: the value's axis to reduce as well.

        Raises:
            ProgramTypeError: if reduce_op is not an operation or value is not a number.
            ProgramError: if the value lacks the axis, or for the reasons given at ``horovod.allreduce``.
        """
        mean = reduce_op_of("reduce_op", reduce_op) is tf.distribute.ReduceOp.MEAN
        if not tf.is_tensor(value):
            checks.numbers("value", value)
        tensor = tf.convert_to_tensor(value)
        if axis is None:
            return reduced("strategy.reduce", tensor, "average" if mean else "sum")
        dimension = checks.integer("axis", axis)
        if tensor.shape.rank is not None and not -tensor.shape.rank <= dimension < tensor.shape.rank:
            checks.wrong_value("axis", f"one of the {tensor.shape.rank} axes of the value", dimension)
        total = reduced("strategy.reduce", tf.reduce_sum(tensor, dimension), "sum")
        if not mean:
            return total
        return total / reduced("strategy.reduce", tf.cast(tf.shape(tensor)[dimension], tensor.dtype), "sum")

    def update_config_proto(self, config_proto: Any) -> Any:
        """Return a session's configuration unchanged: simulated hosts need no servers."""
        return config_proto


class IPUHorovodStrategy(HostStrategy):
    """Strategy that sums gradients with Horovod, over the hosts' network."""


class IPUMultiReplicaStrategy(HostStrategy):
    """Strategy of PopDist and PopRun, for hosts whose devices belong to one machine.

    Before a weight update, IPUs of all hosts with the same variables sum gradients as replicas do, without the hosts.
    The first host's variables, and values of ``reduce``, go over the hosts' network.
    """

    over_links: ClassVar[bool] = True

    def __init__(self, ipu_device: str = "/device:IPU:0", add_ipu_cross_replica_reductions: bool = True) -> None:
        """Check the arguments.

        Args:
            ipu_device: device of a host for programs and queues of the scope.
            add_ipu_cross_replica_reductions: without effect: training programs always reduce their gradients.
        """
        super().__init__(ipu_device)
        checks.truth("add_ipu_cross_replica_reductions", add_ipu_cross_replica_reductions)

    def update_ipu_config(self, config: IPUConfig) -> IPUConfig:
        """Set number of hosts and rank in a configuration; raises ProgramTypeError if config is no IPUConfig."""
        if not isinstance(config, IPUConfig):
            raise ProgramTypeError(f"`config` must be an IPUConfig object, got {type(config)}.")
        config.experimental.multi_replica_distribution.process_count = size()
        config.experimental.multi_replica_distribution.process_index = rank()
        return config


class PopDistStrategy(IPUMultiReplicaStrategy):
    """Strategy of PopDist and PopRun, under its later name."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        """Check the arguments; see :class:`IPUMultiReplicaStrategy`.

        ``enable_dataset_iterators`` and ``enable_keras_extensions`` have no effect: both are always available.
        """
        super().__init__(ipu_device, add_ipu_cross_replica_reductions)
        checks.truth("enable_dataset_iterators", enable_dataset_iterators)
        checks.truth("enable_keras_extensions", enable_keras_extensions)


class IPUMultiWorkerStrategy(HostStrategy):
    """Strategy of a TensorFlow cluster with simulated hosts as workers.

    Attributes:
        cluster_resolver: resolver of the cluster.
    """

    def __init__(
        self,
        cluster_resolver: TFConfigClusterResolver,
        ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ) -> None:
        """Check the arguments; see :class:`HostStrategy`. Raises ProgramTypeError for another ``cluster_resolver``."""
        requirement = "a tf.distribute.cluster_resolver.TFConfigClusterResolver"
        checks.instance("cluster_resolver", cluster_resolver, TFConfigClusterResolver, requirement)
        super().__init__(ipu_device, variables_on_host)
        self.cluster_resolver = cluster_resolver


#: Name of version 1 in Graphcore's last release.
IPUMultiWorkerStrategyV1: Final = IPUMultiWorkerStrategy


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None) -> Any:
    """Divide this host's summed losses by the batch of all hosts.

    In a strategy's scope, ``tf.nn.compute_average_loss`` is this function.

    Args:
        per_example_loss: losses of this host's batch.
        sample_weight: weights of the examples.
        global_batch_size: batch of all hosts; by default this host's batch times the number of hosts.
    """
    losses = tf.convert_to_tensor(per_example_loss)
    if sample_weight is not None:
        losses *= tf.cast(sample_weight, losses.dtype)
    if global_batch_size is None:
        global_batch_size = (losses.shape[0] if losses.shape.rank else 1) * replicas_in_sync()
    return tf.reduce_sum(losses) / tf.cast(global_batch_size, losses.dtype)


@contextmanager
def _updates_on_host() -> Iterator[None]:
    """Reduce gradients over hosts inside apply_gradients, if the strategy keeps variables on the host."""
    apply = _OPTIMIZER.apply_gradients
    if not variables_on_host():
        yield
        return

    def apply_sums(optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if builds_program():
            raise UnsupportedProgramError(
                "variables_on_host: expected apply_gradients on the host, with the gradients that the body of a loop "
                "enqueues, got a call in a body"
            )
        if machine.this_host() is None:
            return apply(optimizer, grads_and_vars, *args, **kwargs)
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        operation = "average" if averages() else "sum"
        total = [(reduced("apply_gradients", gradient, operation), variable) for gradient, variable in pairs]
        return apply(optimizer, total, *args, **kwargs)

    with replaced(_OPTIMIZER, apply_gradients=apply_sums):
        yield
