"""Long properties cut into shards, so that every worker has a part of them until the end."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.effort import runs_slowest, share, slowest

#: Every shard draws from a seed of its own, and the smallest example, which all of them draw first, beyond its share.
SHARDS = 10
#: Those that run, by default a few with more examples each: every shard begins with the smallest one.
SOME_SHARDS = [*range(3), *(pytest.param(shard, marks=slowest) for shard in range(3, SHARDS))]


def some(examples):
    """Return the number of examples of which each shard checks its part, of so many in all."""
    return share(examples) if runs_slowest() else 3 * SHARDS


def check_shard(shard, strategy, check, *, examples):
    """Check this shard's part of ``examples`` drawn ones."""

    @seed(shard)
    @settings(max_examples=examples // SHARDS + 1, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def part(example):
        check(example)

    part()


def drawn(strategy, *, examples):
    """Yield what all shards draw, the same examples that they check; a shard draws when its first is asked for."""
    for shard in range(SHARDS):
        found = []
        check_shard(shard, strategy, found.append, examples=examples)
        yield from found


@lru_cache(maxsize=None, typed=True)
def among(*values):
    """Return what draws one of ``values``: for the same ones the same, as Hypothesis checks each that is new."""
    return st.sampled_from(values)
