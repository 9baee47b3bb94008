"""Refuse automatic sharding, a feature of releases up to 2.0: a simulated program has no graph to divide."""

from __future__ import annotations

from typing import Any, NoReturn

from ipusim.base.errors import UnsupportedProgramError


def automatic_sharding(
    num_shards: int, input_ts: Any, loss_ts: Any, edge_filter: Any = None, frozen_inference: bool = False
) -> NoReturn:
    """Refuse; raises UnsupportedProgramError."""
    _refuse("automatic_sharding")


def ipu_autoshard() -> NoReturn:
    """Refuse; raises UnsupportedProgramError."""
    _refuse("ipu_autoshard")


def _refuse(name: str) -> NoReturn:
    raise UnsupportedProgramError(
        f"autoshard.{name}: expected shards that the program states with scopes.ipu_shard, because a simulated program "
        "has no graph to divide"
    )
