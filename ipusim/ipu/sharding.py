"""Functions of Graphcore's ``sharding``; the scope that shards a program is ``scopes.ipu_shard``."""

from __future__ import annotations

from typing import Any, NoReturn

from ipusim.base.errors import UnsupportedProgramError


def propagate_sharding(g: object) -> None:
    """Do nothing: what is in no scope runs on the shard of what it is computed from."""


def dependencies(roots: Any) -> NoReturn:
    """Refuse: there is no graph. Raises UnsupportedProgramError."""
    _refuse("dependencies")


def get_shard_from_colocation(op: Any) -> NoReturn:
    """Refuse: there is no graph. Raises UnsupportedProgramError."""
    _refuse("get_shard_from_colocation")


def has_attr(o: Any, attr_name: str) -> NoReturn:
    """Refuse: there is no graph. Raises UnsupportedProgramError."""
    _refuse("has_attr")


def _refuse(name: str) -> NoReturn:
    raise UnsupportedProgramError(
        f"sharding.{name}: expected no look at a graph, as a simulated program has none: a stage's function runs"
    )
