"""``tf.distribute.cluster_resolver``: the cluster that the environment variable TF_CONFIG describes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ipusim.errors import ProgramError
from ipusim.ipu import checks
from ipusim.machine.hosts import this_host

_VARIABLE: Final = "TF_CONFIG"
#: Kinds of tasks that train; the first task of the cluster is a chief where there is one.
_TRAINING: Final = ("chief", "worker")


class ClusterSpec:
    """Addresses of a cluster's tasks, by kind."""

    def __init__(self, cluster: Mapping[str, Sequence[str]]) -> None:
        """Take them; raises ProgramTypeError for others."""
        known = isinstance(cluster, Mapping) and all(
            isinstance(kind, str) and isinstance(tasks, list | tuple) and all(isinstance(each, str) for each in tasks)
            for kind, tasks in cluster.items()
        )
        if not known:
            checks.wrong_type("cluster", "a dictionary of lists of addresses", cluster)
        self._cluster = {kind: list(tasks) for kind, tasks in cluster.items()}

    @property
    def jobs(self) -> list[str]:
        """The kinds of tasks."""
        return sorted(self._cluster)

    def num_tasks(self, job_name: str) -> int:
        """Return how many tasks of a kind there are; raises ProgramError for another kind."""
        if job_name not in self._cluster:
            raise ProgramError(f"No such job in cluster: {job_name!r}")
        return len(self._cluster[job_name])

    def as_dict(self) -> dict[str, list[str]]:
        """Return the addresses by kind."""
        return {kind: list(tasks) for kind, tasks in self._cluster.items()}


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
        cluster = _cluster()
        if not cluster and host is not None:
            cluster = {"worker": [f"host{number}" for number in range(count)]}
        tasks = [(kind, place) for kind in _TRAINING for place in range(len(cluster.get(kind, ())))]
        if cluster and len(tasks) != count:
            raise ProgramError(
                f"{_VARIABLE}: expected as many workers, with the chief, as there are simulated hosts, {count}, got "
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


def _cluster() -> dict[str, Any]:
    text = os.environ.get(_VARIABLE, "{}")
    try:
        found = json.loads(text)
        cluster = found.get("cluster", {})
    except (ValueError, AttributeError):
        cluster = None
    if not isinstance(cluster, dict):
        raise ProgramError(
            f'{_VARIABLE}: expected {{"cluster": {{"worker": ["host:port", ...]}}, "task": ...}} in JSON, got {text!r}'
        )
    return ClusterSpec(cluster).as_dict()
