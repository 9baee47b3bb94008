"""``tf.distribute.cluster_resolver``: the cluster that the environment variable TF_CONFIG describes."""

from __future__ import annotations

from typing import Final

from ipusim.errors import ProgramError
from ipusim.ipu.tensorflow.cluster_config import VARIABLE, ClusterSpec, cluster_spec
from ipusim.machine.hosts import this_host

__all__ = ["ClusterSpec", "TFConfigClusterResolver"]

#: Kinds of tasks that train; the first task of the cluster is a chief where there is one.
_TRAINING: Final = ("chief", "worker")


class TFConfigClusterResolver:
    """The cluster of TF_CONFIG, whose chief and workers are the simulated hosts, by rank.

    Without that variable it is the simulated hosts as workers. Which task a host is its rank says: the variable is the
    same for all.

    Raises ProgramError for a variable that describes no cluster, and for one of other than the simulated hosts.
    """

    def __init__(self) -> None:
        """Read the variable."""
        host = this_host()
        rank, count = (0, 1) if host is None else (host.rank, host.count)
        cluster = cluster_spec().as_dict()
        if not cluster and host is not None:
            cluster = {"worker": [f"host{number}" for number in range(count)]}
        tasks = [(kind, place) for kind in _TRAINING for place in range(len(cluster.get(kind, ())))]
        if cluster and len(tasks) != count:
            raise ProgramError(
                f"{VARIABLE}: expected as many workers, with the chief, as there are simulated hosts, {count}, got "
                f"{len(tasks)}: start them with horovod.run(function, np={len(tasks)}), or ipusim run --hosts "
                f"{len(tasks)}"
            )
        self._spec = ClusterSpec(cluster)
        self.task_type, self.task_id = tasks[rank] if tasks else ("worker", 0)

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster."""
        return self._spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return the empty text: a session runs in this process."""
        return ""
