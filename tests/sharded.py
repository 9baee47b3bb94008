"""Long properties cut into shards, so that every worker has a part of them until the end."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

#: Every shard draws from a seed of its own, and the smallest example, which all of them draw first, beyond its share.
SHARDS = 10


def check_shard(shard, strategy, check, *, examples):
    """Check this shard's part of ``examples`` drawn ones."""

    @seed(shard)
    @settings(max_examples=examples // SHARDS + 1, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def part(example):
        check(example)

    part()


def drawn(strategy, *, examples):
    """Return what all shards draw, the same examples that they check."""
    found = []
    for shard in range(SHARDS):
        check_shard(shard, strategy, found.append, examples=examples)
    return found


@lru_cache(maxsize=None, typed=True)
def among(*values):
    """Return what draws one of ``values``: for the same ones the same, as Hypothesis checks each that is new."""
    return st.sampled_from(values)
