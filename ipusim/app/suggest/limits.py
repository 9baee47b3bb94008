"""Limits of a search for a plan, as a user states them: numbers of IPUs and stages, schedules, uses of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, get_args

from ipusim.api import Sync, hardware, pipelines, runs, schedules
from ipusim.app.suggest.baseline import STAY, Baseline
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean

#: Names of placements of stages on IPUs, see :func:`ipusim.app.suggest.choices.mapping_of`.
PLACEMENTS: Final = ("straight", "returning", "around", "there_and_back")
_YES_NO: Final = {"yes": True, "no": False}


@dataclass(frozen=True)
class Limits:
    """Limits of a search; None means unlimited, unless an attribute differs.

    Attributes:
        global_batch: samples in a weight update; None uses the given number.
        ipus: sizes of the device; None searches powers of two up to the given size.
        replicas, stages: allowed numbers.
        micro_batch_sizes: sizes of micro-batches; None uses the given size.
        schedules: names; None searches Graphcore's schedules, ``single``, and the schedule of the given plan.
        sync: sync modes; None uses the given plan's mode, or each schedule's default for a refused plan.
        placements: names of PLACEMENTS; None also searches the given plan's mapping.
        recompute: yes, no or both: whether activations are recomputed.
        offload: yes, no or both: whether Streaming Memory holds optimizer state, under batch serialization activations.
        sharding: yes, no or both: whether replicas shard the optimizer's state.
        activations: destinations of activations: stay, streaming_memory or partner; None uses the given destination.
        orders: selection orders.
    """

    global_batch: int | None = None
    ipus: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    stages: tuple[int, ...] | None = None
    micro_batch_sizes: tuple[int, ...] | None = None
    schedules: tuple[str, ...] | None = None
    sync: tuple[str, ...] | None = None
    placements: tuple[str, ...] | None = None
    recompute: tuple[str, ...] | None = None
    offload: tuple[str, ...] | None = None
    sharding: tuple[str, ...] | None = None
    activations: tuple[str, ...] | None = None
    orders: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Raise OptionError for numbers below 1 and unknown names."""
        names_of_limit: dict[str, Sequence[str]] = {
            "sync": [mode.value for mode in Sync],
            "placements": PLACEMENTS,
            **dict.fromkeys(("recompute", "offload", "sharding"), tuple(_YES_NO)),
            "activations": (STAY, *get_args(pipelines.Destination)),
            "orders": tuple(hardware.ORDERS),
        }
        for name, values in self.given.items():
            if not values:
                raise OptionError(name, "expected at least one value to search, got none")
            for value in values:
                if isinstance(value, int) and value < 1:
                    raise OptionError(name, f"expected a whole number from 1 up, got {value}")
                if value not in (names := names_of_limit.get(name, values)):
                    text = f"expected {runs.one_of(names)}, got {runs.show(value)}{did_you_mean(value, names)}"
                    raise OptionError(name, text)

    @property
    def given(self) -> dict[str, tuple[Any, ...]]:
        """Values of the limits that are set."""
        limits = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        return {name: limit if isinstance(limit, tuple) else (limit,) for name, limit in given.items()}

    def leave(self, baseline: Baseline) -> bool:
        """Return whether the limits allow the given plan; False for limited placements, which are not compared."""
        if baseline.job is None or self.placements is not None:
            return False
        job, options = baseline.job, baseline.request.options
        shape, offload = job.program.shape, job.program.offload
        values: dict[str, set[Any]] = {
            "global_batch": {baseline.global_batch},
            "ipus": {baseline.ipus},
            "replicas": {baseline.replicas},
            "stages": {shape.stages},
            "micro_batch_sizes": {baseline.micro_batch_size},
            "schedules": {job.schedule.name, options.pipeline.schedule},
            "sync": {job.plan.sync.value},
            "recompute": {word_of(shape.recompute or shape.recompute_inline)},
            "offload": {word_of(offload.weight_update_variables)},
            "sharding": {word_of(offload.sharded_state)},
            "activations": {baseline.activations},
            "orders": {job.system.selection_order, options.system.selection_order},
        }
        allowed = self.given
        if self.schedules is not None:
            allowed["schedules"] = tuple(schedules.expand_names(self.schedules))
        return all(values[name] & {*limit} for name, limit in allowed.items())

    def sizes_of(self, baseline: Baseline) -> tuple[int, ...]:
        """Return the micro-batch sizes to search; raises OptionError for a size with unknown stage costs."""
        plan_size = baseline.micro_batch_size
        sizes = self.micro_batch_sizes or (plan_size,)
        if baseline.request.has_timed_stages and any(size != plan_size for size in sizes):
            text = f"expected {plan_size}, the size of the stages' cycles, got {', '.join(map(str, sizes))}"
            raise OptionError("micro_batch_sizes", text)
        return sizes


def word_of(truth: bool) -> str:
    """Return ``yes`` or ``no``."""
    return next(word for word, means in _YES_NO.items() if means == truth)


def truths_of(words: tuple[str, ...] | None) -> tuple[bool, ...]:
    """Return the truth values of a limit of ``yes`` and ``no``; both if unlimited."""
    return (False, True) if words is None else tuple(_YES_NO[word] for word in words)
