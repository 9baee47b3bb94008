"""Graphcore's enumerations of schedules and recomputation modes."""

from __future__ import annotations

from enum import Enum

from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE


class PipelineSchedule(Enum):
    """How stages and micro-batches overlap; the value is the name of the core's schedule."""

    Grouped = "grouped"
    Interleaved = "interleaved"
    Sequential = "sequential"


class LoopSchedule(Enum):
    """How a loop without a pipeline runs; the value is the name of the core's schedule."""

    Single = "single"
    Sharded = "sharded"


class RecomputationMode(Enum):
    """When a stage's activations are computed again; the value is the core's name."""

    Auto = "Auto"
    RecomputeThenBackpropagate = THEN_BACKPROPAGATE
    RecomputeAndBackpropagateInterleaved = INTERLEAVED
