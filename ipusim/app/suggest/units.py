"""Compute tables of cost and memory for all ranges of units; a model is cut between units.

A unit is a layer, or a whole stage if the request gives the costs of stages. The cost of a stage is the sum over its
layers, except for the first stage: its backward pass ends at the first layer with weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from ipusim.api import Job, Request, assemble, models, pipelines, pricing, runs
from ipusim.api import layers as core_layers
from ipusim.app.study.trial import time_alone
from ipusim.app.suggest.inline import Inline, inline_of
from ipusim.app.suggest.tables import Table, sums
from ipusim.base.errors import OptionError

#: Passes with separate costs besides recomputation.
KINDS: Final = tuple(kind for kind in pipelines.Pass if kind is not pipelines.Pass.RECOMPUTE)
#: Options of a run that gives the units' costs. Every unit is a stage, and one IPU holds all stages.
_DEFAULT_VALUES: Final[dict[str, Any]] = {
    "system.auto_select_ipus": 1,
    "system.select_ipus": None,
    "system.selection_order": "AUTO",
    "system.sync_replicas_independently": False,
    "system.io_tiles.place_ops_on_io_tiles": False,
    "pipeline.schedule": "single",
    "pipeline.sync": None,
    "pipeline.device_mapping": None,
    "pipeline.virtual_stages": None,
    "pipeline.gradient_accumulation_count": 1,
    "pipeline.repeat_count": 1,
    "pipeline.batch_serialization_iterations": 1,
    "pipeline.allow_recompute": False,
    "pipeline.recomputation_mode": "Auto",
    "pipeline.recomputation_checkpoints": [],
    "pipeline.offload_weight_update_variables": False,
    "pipeline.offload_gradient_accumulation_buffers": False,
    "pipeline.offload_activations": False,
    "pipeline.replicated_optimizer_state_sharding": False,
    "pipeline.replicated_weight_sharding": False,
    "pipeline.offload_weights": None,
    "steps": 1,
    "memory": "off",
}


@dataclass(frozen=True, eq=False)
class Units:
    """Units of a model, with cost tables for all stages.

    Tables are indexed by a stage's first unit and by the unit after its last.

    Attributes:
        names: names of the layers, or of unchangeable stages.
        movable: whether a stage may begin at any unit; otherwise each unit is a stage.
        profiles: profile of each unit as a separate stage.
        pass_cycles: cycles of each of KINDS, shape (kinds, units + 1, units + 1).
        updates: cycles of the weight update.
        stash: lower bound on stashed bytes of a micro-batch.
        inline: recomputation inside backward passes.
        shared_pairs: pairs of units that share weights and must be on one IPU.
        training: whether backward passes exist.
        host: cost of an element of each queue; the outfeed costs nothing unless every micro-batch sends an element.
        prefetch_depth: number of elements that the host prefetches.
        sum_buffer_bytes: number of waiting gradient bytes that starts a sum over replicas; None for a single sum.
    """

    names: tuple[str, ...]
    movable: bool
    profiles: tuple[models.StageProfile, ...]
    pass_cycles: Table
    updates: Table
    stash: Table
    inline: Inline
    shared_pairs: tuple[tuple[int, int], ...]
    training: bool
    host: pricing.HostCosts
    prefetch_depth: int
    sum_buffer_bytes: int | None

    def __len__(self) -> int:
        """Return the number of units."""
        return len(self.names)

    def sum_of(self, figure: Callable[[models.StageProfile], int]) -> Table:
        """Return the table of a profile's number, summed over each stage's units."""
        return sums([figure(profile) for profile in self.profiles])

    @cached_property
    def sent_forward(self) -> Table:
        """Bytes that a stage sends forward, by the unit after its last."""
        return np.concatenate([[0], self.column("output_bytes")])

    @cached_property
    def sent_backward(self) -> Table:
        """Bytes that a stage sends back, by its first unit."""
        return np.concatenate([self.column("gradient_bytes"), [0]])

    def column(self, attribute: str) -> Table:
        """Return an attribute of all profiles, in bytes."""
        return np.array([getattr(profile, attribute) for profile in self.profiles], dtype=np.int64)


def movable(options: runs.Options) -> bool:
    """Return whether the layers may be cut anew.

    Stages with given cycles, options or branches stay unchanged.
    """
    pipeline = options.pipeline
    poplar_options = (
        pipeline.forward_propagation_stages_poplar_options,
        pipeline.backward_propagation_stages_poplar_options,
    )
    is_listed = all(
        isinstance(stage, runs.NamedStageSpec) or (isinstance(stage, tuple) and isinstance(stage[0], str))
        for stage in pipeline.stages or ()
    )
    concurrent = any(isinstance(ipus, tuple) for ipus in pipeline.device_mapping or ())
    return (
        options.model is not None
        and all(option is None for option in (pipeline.cycles, *poplar_options))
        and is_listed
        and not concurrent
    )


def units_of(request: Request, micro_batch_size: int) -> Units:
    """Return the units of ``request`` at a micro-batch size.

    Raises:
        RequestError: for an invalid request.
        OptionError: for a model with more layers than the maximum number of stages.
    """
    options = request.options
    findings = runs.Findings(request.is_set)
    is_movable = movable(options)
    layers = runs.model_layers(options, findings) if is_movable else []
    findings.raise_if_any()
    if len(layers) > runs.MAX_STAGES:
        text = (
            f"expected a model of at most {runs.MAX_STAGES} layers to cut, got {len(layers)}: combine layers to blocks"
        )
        raise OptionError("scenario", text)
    names = [layer.spec.name for layer in layers]
    changes: dict[str, Any] = {**_DEFAULT_VALUES, "pipeline.micro_batch_size": micro_batch_size}
    if is_movable:
        changes |= {"pipeline.stages": None, "pipeline.splits": names[1:]}
    job = assemble(time_alone(request, changes))
    profiles, outfeed = job.program.stages, job.program.outfeed
    costs_of = [(profile.forward, profile.backward, *profile.halves) for profile in profiles]
    costs = np.array([[_cycles(cost, job) for cost in stage_costs] for stage_costs in costs_of], dtype=np.int64).T
    first_trained = next((index for index, profile in enumerate(profiles) if profile.parameter_bytes), None)
    pass_cycles = np.stack([sums(cycles) for cycles in costs])
    updates = [
        _cycles(profile.update, job) if pricing.counts_update(profile, job.program, job.system) else 0
        for profile in profiles
    ]
    unit_names = tuple(names) if is_movable else tuple(profile.name for profile in profiles)
    stash = _stash(
        profiles, _passed_bytes(request, changes, names, profiles), first_trained or 0 if is_movable else 0, layers
    )
    kept_names = runs.kept_layers(options, layers)
    checkpoints = [unit for unit, name in enumerate(names, 1) if name in kept_names]
    inline = inline_of(profiles, pass_cycles[0], stash, first_trained or 0, checkpoints)
    training, depth = job.program.shape.training, job.program.infeed.prefetch_depth
    host = job.costs.host if outfeed.mode == "ALL" and not outfeed.accumulate else replace(job.costs.host, outfeed=0)
    return Units(
        unit_names,
        is_movable,
        profiles,
        pass_cycles,
        sums(updates),
        stash,
        inline,
        tuple(_shared_pairs(layers)),
        training,
        host,
        depth,
        job.program.sum_buffer_bytes,
    )


def _cycles(cost: models.PassCost, job: Job) -> int:
    return pricing.pass_cycles(cost, job.system.ipu, job.system.rates)


def _passed_bytes(
    request: Request,
    changes: dict[str, Any],
    names: Sequence[str],
    profiles: Sequence[models.StageProfile],
) -> Table:
    """Return the bytes that both a unit and the next unit stash; the last unit has its activation bytes.

    The stash of a stage with both units tells the bytes. If either unit stashes nothing, the first unit may hand on its
    input, and all passed bytes count.
    """
    single_bytes = [profile.stash_bytes for profile in profiles]
    passed_bytes = np.array([profile.activation_bytes for profile in profiles], dtype=np.int64)
    for parity in (0, 1) if len(names) > 1 else ():
        splits = [name for unit, name in enumerate(names) if unit and unit % 2 == parity]
        pairs = assemble(time_alone(request, {**changes, "pipeline.splits": splits})).program.stages
        for number, pair in enumerate(pairs):
            unit = 2 * number - parity
            if 0 < unit < len(names) - 1 and single_bytes[unit] and single_bytes[unit + 1]:
                passed_bytes[unit] = min(
                    passed_bytes[unit], single_bytes[unit] + single_bytes[unit + 1] - pair.stash_bytes
                )
    return passed_bytes


def _stash(
    profiles: Sequence[models.StageProfile],
    passed_bytes: Table,
    first_trained: int,
    layers: Sequence[runs.RequestedLayer],
) -> Table:
    """Return lower bounds on stages' stashed bytes per micro-batch.

    Neighbouring units may share an array of ``passed_bytes`` bytes, which counts once. Skip connections may also share
    arrays between distant units; the bound is then 0.
    """
    stashed = np.array([profile.stash_bytes for profile in profiles], dtype=np.int64)
    if any(map(runs.is_add, layers)):
        return np.zeros((len(stashed) + 1,) * 2, dtype=np.int64)
    table = sums(stashed - passed_bytes) + np.concatenate([[0], passed_bytes])[None, :]
    stashed[:first_trained] = 0
    passed_bytes = np.where(np.arange(len(passed_bytes)) < first_trained, 0, passed_bytes)
    table[0] = sums(stashed - passed_bytes)[0] + np.concatenate([[0], passed_bytes])
    table = np.maximum(np.triu(table, 1), 0)
    single = np.arange(len(stashed))
    table[single, single + 1] = [profile.stash_bytes for profile in profiles]
    return np.asarray(table)


def _shared_pairs(layers: Sequence[runs.RequestedLayer]) -> list[tuple[int, int]]:
    """Return pairs of layers: the second layer uses weights of the first."""
    number_of = {layer.spec.name: number for number, layer in enumerate(layers)}
    pairs = []
    for number, layer in enumerate(layers):
        spec = layer.spec
        if isinstance(spec, runs.BuiltSpec) and hasattr(spec.row.kind_class, "shared_parameters"):
            pairs += [
                (number_of[owner], number)
                for key in spec.row.keys
                if key.hint is core_layers.EarlierLayer and (owner := getattr(spec, key.argument)) in number_of
            ]
    return pairs
