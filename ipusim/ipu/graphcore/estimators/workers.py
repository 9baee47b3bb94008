"""The hosts that run an estimator together: the cluster, the chief, and each worker's share of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()


class Cluster(NamedTuple):
    """The place of this process among others.

    Attributes:
        cluster_spec: addresses by the type of task, as a ``tf.train.ClusterSpec``.
        task_type, task_id: the task of this process.
        master: its address; empty without a cluster.
        num_ps_replicas, num_worker_replicas: servers of parameters, and workers with the chief.
        is_chief: whether this process is the chief.
    """

    cluster_spec: Any
    task_type: str
    task_id: int
    master: str
    num_ps_replicas: int
    num_worker_replicas: int
    is_chief: bool

    @classmethod
    def of(cls, strategy: Any) -> Cluster:
        """Return the cluster of a strategy, or of the environment where there is no strategy.

        Raises:
            ProgramError: naming ``TF_CONFIG``, for what does not go together.
        """
        resolver = getattr(strategy, "cluster_resolver", None)
        if strategy is not None and resolver is None:
            return cls(tf.train.ClusterSpec({}), "worker", 0, "", 0, 1, True)
        try:
            found = resolver or tf.distribute.cluster_resolver.TFConfigClusterResolver()
            spec, kind, index = found.cluster_spec(), found.task_type, found.task_id or 0
        except (AttributeError, TypeError, ValueError) as error:
            raise ProgramError(f"TF_CONFIG: expected a cluster and a task in JSON: {error}") from None
        addresses: dict[str, list[str]] = spec.as_dict()
        if kind == "evaluator":
            return cls(tf.train.ClusterSpec({}), kind, index, "", 0, 0, False)
        if not addresses:
            if kind not in (None, "worker", "chief"):
                _refuse("If cluster is not set in TF_CONFIG, task_type must be worker or chief", kind)
            return cls(spec, kind or "worker", index, "", 0, 1, True)
        if kind is None:
            _refuse("If `cluster` is set in TF_CONFIG, task type and index must be set", addresses)
        if strategy is None and len(addresses.get("chief", ())) != 1:
            _refuse("If `cluster` is set in TF_CONFIG, it must have one `chief` node", addresses)
        if index >= len(addresses.get(kind, ())):
            _refuse(f"expected one of its cluster's tasks, {addresses}, as its task", (kind, index))
        return cls(spec, kind, index, addresses[kind][index], *_counts(addresses), _is_first(addresses, kind, index))


def _counts(addresses: Mapping[str, Sequence[str]]) -> tuple[int, int]:
    return len(addresses.get("ps", ())), len(addresses.get("worker", ())) + len(addresses.get("chief", ()))


def _is_first(addresses: Mapping[str, Sequence[str]], kind: str, index: int) -> bool:
    return kind == "chief" or ("chief" not in addresses and kind == "worker" and index == 0)


def _refuse(text: str, value: object) -> NoReturn:
    raise ProgramError(f"TF_CONFIG: {text}, got {value!r}")


class Workers:
    """The hosts of a strategy; this host alone where there is no strategy.

    All that an estimator knows of other hosts is asked for here.
    """

    def __init__(self, strategy: Any, cluster: Cluster) -> None:
        """Take the strategy of what runs next.

        Raises:
            UnsupportedProgramError: for several workers.
        """
        self._strategy, self._cluster = strategy, cluster
        if cluster.num_worker_replicas + cluster.num_ps_replicas > 1:
            raise UnsupportedProgramError(
                "TF_CONFIG: expected one worker of a RunConfig without train_distribute, which says the strategy of "
                f"several, got {cluster.cluster_spec.as_dict()}"
            )

    @property
    def count(self) -> int:
        """The number of hosts."""
        return 1

    @property
    def is_chief(self) -> bool:
        """Whether this host saves and logs."""
        return True

    def batch(self, name: str, size: Any, replicas: int) -> int | None:
        """Return the part of a batch that a replica of a worker has; raises ProgramError in Graphcore's words."""
        if size is None:
            return None
        if checks.integer(name, size) < 1:
            raise ProgramError(f"{name} (got {size}) must be positive")
        if size % (self.count * replicas):
            raise ProgramError(
                f"{name} (got {size}) must be divisible by num_workers * num_replicas ({self.count} * {replicas})"
            )
        return checks.whole(name, size) // (self.count * replicas)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Be in the strategy's scope in the block."""
        if self._strategy is None:
            yield
        else:
            with self._strategy.scope():
                yield

    def input_arguments(self) -> dict[str, Any]:
        """Return what an input function is given besides: an ``input_context`` under a strategy."""
        return {} if self._strategy is None else {"input_context": tf.distribute.InputContext(self.count, 0, self.count)}

    def mean(self, loss: Any) -> Any:
        """Return the mean of a loss over all hosts."""
        return loss
