"""The cluster of a ``RunConfig``: what the environment variable TF_CONFIG describes, or the hosts of a strategy."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from ipusim.errors import ProgramError
from ipusim.ipu import checks
from ipusim.ipu.host_strategy import HostStrategy
from ipusim.machine.hosts import this_host
from ipusim.runs.problems import one_of

#: The name of the variable, which messages begin with.
VARIABLE: Final = "TF_CONFIG"
_CHIEF, _EVALUATOR, _WORKER, _SERVER = "chief", "evaluator", "worker", "ps"


class ClusterSpec:
    """Addresses of a cluster's tasks, by kind."""

    def __init__(self, cluster: Mapping[str, Sequence[str]]) -> None:
        """Take them; raises ProgramTypeError for others."""
        if not _is_cluster(cluster):
            checks.wrong_type("cluster", "a dictionary of lists of addresses", cluster)
        self._cluster = {kind: list(tasks) for kind, tasks in cluster.items()}

    def __eq__(self, other: object) -> bool:
        """Tell whether another, or a dictionary, has the same addresses."""
        return self._cluster == (other._cluster if isinstance(other, ClusterSpec) else other)

    __hash__ = None  # type: ignore[assignment]  # as TensorFlow's

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


class ClusterConfig(NamedTuple):
    """Who this process is, and with how many others.

    Attributes:
        cluster_spec: addresses by the type of task.
        task_type, task_id: this process's.
        master: its address; empty without a cluster.
        num_ps_replicas, num_worker_replicas: servers of parameters, and workers with the chief.
        is_chief: whether it is the chief.
    """

    cluster_spec: Mapping[str, Any]
    task_type: str
    task_id: int
    master: str
    num_ps_replicas: int
    num_worker_replicas: int
    is_chief: bool


def cluster_spec() -> ClusterSpec:
    """Return the addresses that the environment says; raises ProgramError for what is none, or not of its task."""
    found = _environment()
    cluster, (kind, place) = _cluster_in(found), _task_in(found)
    if cluster.jobs and "type" in _part(found, "task"):
        _check_task(cluster.as_dict(), kind, place)
    return cluster


def cluster_config() -> ClusterConfig:
    """Return what the environment says; raises ProgramError in TensorFlow's words for what does not go together."""
    found = _environment()
    cluster, task = _cluster_in(found).as_dict(), _part(found, "task")
    kind, place = _task_in(found)
    if cluster and ("type" not in task or "index" not in task):
        _refuse("If `cluster` is set in TF_CONFIG, task type and index must be set", task)
    if kind == _EVALUATOR:
        return ClusterConfig({}, kind, place, "", 0, 0, False)
    if not cluster:
        if kind not in (_WORKER, _CHIEF):
            _refuse("If cluster is not set in TF_CONFIG, task_type must be worker or chief", kind)
        return ClusterConfig({}, kind, place, "", 0, 1, True)
    if len(cluster.get(_CHIEF, ())) != 1:
        _refuse("If `cluster` is set in TF_CONFIG, it must have one `chief` node", cluster)
    _check_task(cluster, kind, place)
    workers = len(cluster.get(_WORKER, ())) + 1
    address = cluster[kind][place]
    return ClusterConfig(cluster, kind, place, address, len(cluster.get(_SERVER, ())), workers, kind == _CHIEF)


def cluster_of(strategy: HostStrategy) -> ClusterConfig:
    """Return the simulated hosts as the workers of a strategy, the first of which is the chief."""
    host, resolver = this_host(), getattr(strategy, "cluster_resolver", None)
    rank, count = (0, 1) if host is None else (host.rank, host.count)
    if resolver is None:
        return ClusterConfig({}, _WORKER, rank, "", 0, count, rank == 0)
    cluster = resolver.cluster_spec().as_dict()
    servers = len(cluster.get(_SERVER, ()))
    return ClusterConfig(cluster, resolver.task_type, resolver.task_id, resolver.master(), servers, count, rank == 0)


def _environment() -> Mapping[str, Any]:
    text = os.environ.get(VARIABLE, "{}")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        _refuse('expected {"cluster": {"worker": ["host:port", ...]}, "task": ...} in JSON', text)
    return found


def _part(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name, {})
    if not isinstance(part, dict):
        _refuse(f"expected a dictionary for {name!r}", part)
    return part


def _task_in(found: Mapping[str, Any]) -> tuple[str, int]:
    """Return the type and index of this process's task."""
    task = _part(found, "task")
    kind, place = task.get("type", _WORKER), task.get("index", 0)
    if not isinstance(kind, str):
        _refuse("expected a text as type of its task", kind)
    if not isinstance(place, int) or isinstance(place, bool) or place < 0:
        _refuse("expected a whole number from 0 as index of its task", place)
    return kind, place


def _check_task(cluster: Mapping[str, Sequence[str]], kind: str, place: int) -> None:
    """Refuse a task that the cluster has not; an evaluator stands outside of it."""
    if kind == _EVALUATOR:
        return
    if kind not in cluster:
        _refuse(f"expected {one_of(sorted(cluster))} as type of its task, as its cluster has them", kind)
    if place >= len(cluster[kind]):
        tasks = len(cluster[kind])
        _refuse(
            f"expected one of its cluster's {tasks:,} tasks of {kind!r}, counted from 0, as index of its task", place
        )


def _cluster_in(found: Mapping[str, Any]) -> ClusterSpec:
    cluster = _part(found, "cluster")
    if not _is_cluster(cluster):
        _refuse("expected a list of addresses for each type of task of the cluster", cluster)
    return ClusterSpec(cluster)


def _is_cluster(cluster: Any) -> bool:
    """Tell whether something is a dictionary of lists of texts."""
    return isinstance(cluster, Mapping) and all(
        isinstance(kind, str) and isinstance(tasks, list | tuple) and all(isinstance(each, str) for each in tasks)
        for kind, tasks in cluster.items()
    )


def _refuse(text: str, given: object) -> NoReturn:
    raise ProgramError(f"{VARIABLE}: {text}, got {given!r}")
