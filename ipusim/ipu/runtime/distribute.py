"""Simulate ``tf.distribute``: host clusters described by TF_CONFIG, and reductions over hosts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, NoReturn

from ipusim.api import machine, runs
from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks, hosts
from ipusim.ipu.runtime.host_strategy import strategy

tf = load()

#: Name of the environment variable, used in messages.
VARIABLE: Final = "TF_CONFIG"
#: Task types of TensorFlow.
_CHIEF, _EVALUATOR, _WORKER, _SERVER = "chief", "evaluator", "worker", "ps"


class ClusterConfig(NamedTuple):
    """Task of this process, and size of the cluster.

    Attributes:
        cluster_spec: addresses by task type.
        task_type, task_id: task of this process.
        master: address of this process; empty for programs without a cluster.
        num_ps_replicas, num_worker_replicas: number of parameter servers, and number of workers including the chief.
        is_chief: whether this process is the chief.
    """

    cluster_spec: Any
    task_type: str
    task_id: int
    master: str
    num_ps_replicas: int
    num_worker_replicas: int
    is_chief: bool


def cluster_spec() -> Any:
    """Return the addresses in TF_CONFIG; raises ProgramError if malformed, or if the stated task is missing in them."""
    cluster, task, kind, index = _environment()
    if cluster.jobs and "type" in task:
        _check_task(cluster.as_dict(), kind, index)
    return cluster


def cluster_config() -> ClusterConfig:
    """Return the cluster from TF_CONFIG; raises ProgramError with TensorFlow's message if inconsistent."""
    spec, task, kind, index = _environment()
    cluster = spec.as_dict()
    if cluster and ("type" not in task or "index" not in task):
        _refuse("If `cluster` is set in TF_CONFIG, task type and index must be set", task)
    if kind == _EVALUATOR:
        return ClusterConfig(tf.train.ClusterSpec({}), kind, index, "", 0, 0, False)
    if not cluster:
        if kind not in (_WORKER, _CHIEF):
            _refuse("If cluster is not set in TF_CONFIG, task_type must be worker or chief", kind)
        return ClusterConfig(spec, kind, index, "", 0, 1, True)
    if len(cluster.get(_CHIEF, ())) != 1:
        _refuse("If `cluster` is set in TF_CONFIG, it must have one `chief` node", cluster)
    _check_task(cluster, kind, index)
    workers = len(cluster.get(_WORKER, ())) + 1
    address = cluster[kind][index]
    return ClusterConfig(spec, kind, index, address, len(cluster.get(_SERVER, ())), workers, kind == _CHIEF)


def cluster_of(strategy: Any) -> ClusterConfig:
    """Return simulated hosts as a strategy's workers; host 0 is the chief."""
    resolver, rank, count = getattr(strategy, "cluster_resolver", None), hosts.rank(), hosts.size()
    if resolver is None:
        return ClusterConfig(tf.train.ClusterSpec({}), _WORKER, rank, "", 0, count, rank == 0)
    spec = resolver.cluster_spec()
    servers = len(spec.as_dict().get(_SERVER, ()))
    return ClusterConfig(spec, resolver.task_type, resolver.task_id, resolver.master(), servers, count, rank == 0)


def _environment() -> tuple[Any, Mapping[str, Any], str, int]:
    """Return TF_CONFIG's cluster, this process's task, task type and task index.

    Raises ProgramError for malformed parts.
    """
    text = os.environ.get(VARIABLE, "{}")
    try:
        config = json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        _refuse('expected {"cluster": {"worker": ["host:port", ...]}, "task": ...} in JSON', text)
    cluster = _dictionary_of(config, "cluster")
    if not _is_cluster(cluster):
        _refuse("expected a list of addresses for each type of task of the cluster", cluster)
    task = _dictionary_of(config, "task")
    kind, index = task.get("type", _WORKER), task.get("index", 0)
    if not isinstance(kind, str):
        _refuse("expected a text for the type of the task", kind)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        _refuse("expected a whole number from 0 for the index of the task", index)
    return tf.train.ClusterSpec(cluster), task, kind, index


def _dictionary_of(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a dictionary in TF_CONFIG, empty if missing."""
    part = config.get(name, {})
    if not isinstance(part, dict):
        _refuse(f"expected a dictionary for {name!r}", part)
    return part


def _check_task(cluster: Mapping[str, Sequence[str]], kind: str, index: int) -> None:
    """Refuse a task missing in the cluster; evaluators do not belong to the cluster."""
    if kind == _EVALUATOR:
        return
    if kind not in cluster:
        _refuse(f"expected a type of task in the cluster, {runs.one_of(sorted(cluster))}", kind)
    tasks = len(cluster[kind])
    if index >= tasks:
        _refuse(f"expected an index of the task below {tasks:,}, the cluster's number of tasks of type {kind!r}", index)


def _is_cluster(cluster: Any) -> bool:
    """Tell whether a value is a dictionary of lists of strings."""
    return isinstance(cluster, Mapping) and all(
        isinstance(kind, str) and isinstance(tasks, list | tuple) and all(isinstance(task, str) for task in tasks)
        for kind, tasks in cluster.items()
    )


def _refuse(text: str, value: object) -> NoReturn:
    raise ProgramError(f"{VARIABLE}: {text}, got {value!r}")


class TFConfigClusterResolver:
    """TF_CONFIG's cluster, whose chief and workers are the simulated hosts, by rank.

    Without TF_CONFIG, the simulated hosts are workers. A host's rank decides the host's task, since the variable is
    equal on all hosts.

    Raises ProgramError for a malformed TF_CONFIG, and for more or fewer workers than simulated hosts.
    """

    def __init__(self) -> None:
        """Read the variable."""
        rank, count = hosts.rank(), hosts.size()
        cluster = cluster_spec().as_dict()
        if not cluster and machine.this_host() is not None:
            cluster = {"worker": [f"host{number}" for number in range(count)]}
        tasks = [(kind, index) for kind in (_CHIEF, _WORKER) for index in range(len(cluster.get(kind, ())))]
        if cluster and len(tasks) != count:
            raise ProgramError(
                f"{VARIABLE}: expected as many workers, with the chief, as there are simulated hosts, {count}, got "
                f"{len(tasks)}: start them with ipusim run --hosts "
                f"{len(tasks)}"
            )
        self._spec = tf.train.ClusterSpec(cluster)
        self.task_type, self.task_id = tasks[rank] if tasks else ("worker", 0)

    def cluster_spec(self) -> Any:
        """Return the cluster."""
        return self._spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return an empty text: sessions run in this process."""
        return ""


class Server:
    """A cluster's server; simulated hosts share a process and need no server.

    Args:
        server_or_cluster_def: the cluster, from a resolver or as a dictionary of lists of addresses.
        job_name, task_index: task of this server.
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
        """Check the arguments; raises ProgramError for a task missing in the cluster."""
        spec = server_or_cluster_def
        if not isinstance(spec, tf.train.ClusterSpec):
            if not _is_cluster(spec):
                checks.wrong_type("cluster", "a dictionary of lists of addresses", spec)
            spec = tf.train.ClusterSpec(spec)
        kind = None if job_name is None else checks.text("job_name", job_name)
        index = None if task_index is None else checks.whole("task_index", task_index)
        if kind is None or index is None or not spec.jobs:
            return
        if kind not in spec.jobs:
            raise ProgramError(f"No such job in cluster: {kind!r}")
        if index >= spec.num_tasks(kind):
            checks.wrong_value("task_index", f"one of the {spec.num_tasks(kind)} tasks of {kind!r}", index)

    @property
    def target(self) -> str:
        """Address for sessions: empty, for this process."""
        return ""

    def start(self) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Return at once: hosts end with their programs."""


def reduce_op_of(name: str, value: Any) -> Any:
    """Return a ReduceOp, given itself or by a name in upper or lower case; raises ProgramTypeError and ProgramError."""
    operations = tf.distribute.ReduceOp
    if isinstance(value, str):
        if value.upper() not in operations.__members__:
            checks.wrong_value(name, "SUM or MEAN", value)
        return operations[value.upper()]
    checks.instance(name, value, operations, "tf.distribute.ReduceOp.SUM or tf.distribute.ReduceOp.MEAN")
    return value


def has_strategy() -> bool:
    """Return whether the caller is inside the scope of a multi-host strategy."""
    return strategy() is not None


def get_strategy() -> Any:
    """Return the strategy of the enclosing scope; outside scopes TensorFlow's default strategy."""
    return strategy() or tf.distribute.get_strategy()


#: ``tf.distribute.cluster_resolver``.
cluster_resolver: Final = SimpleNamespace(TFConfigClusterResolver=TFConfigClusterResolver)
