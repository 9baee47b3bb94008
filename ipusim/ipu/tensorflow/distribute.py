"""``tf.distribute``: clusters of simulated hosts, and how their values are reduced."""

from __future__ import annotations

from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.distribution import strategy
from ipusim.ipu.reduce_op import ReduceOp
from ipusim.ipu.tensorflow import cluster_resolver
from ipusim.ipu.tensorflow.cluster_resolver import ClusterSpec
from ipusim.ipu.tensorflow.distribute_config import DistributeConfig
from ipusim.ipu.tensorflow.input_context import InputContext

__all__ = [
    "DistributeConfig",
    "InputContext",
    "ReduceOp",
    "Server",
    "cluster_resolver",
    "experimental",
    "get_strategy",
    "has_strategy",
]


class experimental:  # noqa: N801 - TensorFlow's name of a module
    """What programs use of ``tf.distribute.experimental``."""

    DistributeConfig = DistributeConfig


class Server:
    """A server of a cluster: hosts are simulated in one process and need none.

    Arguments:
        server_or_cluster_def: the cluster, from a resolver or as a dictionary of lists of addresses.
        job_name, task_index: which of its tasks this is.
        protocol, config, start: without effect.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: object = None,
        start: bool = True,
    ) -> None:
        """Check the arguments; raises ProgramError for a task that the cluster has not."""
        spec = (
            server_or_cluster_def
            if isinstance(server_or_cluster_def, ClusterSpec)
            else ClusterSpec(server_or_cluster_def)
        )
        kind = None if job_name is None else checks.text("job_name", job_name)
        place = None if task_index is None else checks.whole("task_index", task_index)
        if kind is not None and place is not None and spec.jobs and place >= spec.num_tasks(kind):
            checks.wrong_value("task_index", f"one of the {spec.num_tasks(kind)} tasks of {kind!r}", place)

    @property
    def target(self) -> str:
        """What a session connects to: itself."""
        return ""

    def start(self) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Return at once: the hosts end with their programs."""


def has_strategy() -> bool:
    """Return whether the caller is in the scope of a strategy of several hosts."""
    return strategy() is not None


def get_strategy() -> Any:
    """Return the strategy whose scope the caller is in, None for none."""
    return strategy()
