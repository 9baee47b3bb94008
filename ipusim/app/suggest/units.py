"""The units that a model is cut between, and the cost and memory of any row of them, in tables.

A unit is a layer, or a whole stage where the request says what its stages cost. What a stage costs is the sum over
its layers, but for the first stage, whose backward pass ends at its first layer with weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Job, Request, assemble, models, pipelines, pricing, runs
from ipusim.api import layers as core_layers
from ipusim.app.study.trial import time_alone
from ipusim.base.errors import OptionError

Table = npt.NDArray[np.int64]

#: The passes that are priced by themselves: a recomputation costs what its forward pass does.
KINDS: Final = tuple(kind for kind in pipelines.Pass if kind is not pipelines.Pass.RECOMPUTE)
#: Every unit a stage of its own, on one IPU, once: what is asked for to learn what they cost.
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
    """The units of a model, and tables with a row for the first unit of a stage and a column for the one behind it.

    Attributes:
        names: of the layers, or of the stages where they stay as they are.
        movable: whether a stage may begin at any of them; else each is a stage.
        profiles: of each as a stage of its own.
        passes: cycles of each of KINDS, shape (kinds, units + 1, units + 1).
        updates: cycles of the weight update.
        stash: bytes that are kept of a micro-batch, at least.
        shared_pairs: pairs of units that use the same weights, which lie on one IPU.
        training: whether there are backward passes.
        host: what an element of each queue costs; nothing to send where not every micro-batch has one.
        prefetch_depth: elements that the host puts down ahead.
    """

    names: tuple[str, ...]
    movable: bool
    profiles: tuple[models.StageProfile, ...]
    passes: Table
    updates: Table
    stash: Table
    shared_pairs: tuple[tuple[int, int], ...]
    training: bool
    host: pricing.HostCosts
    prefetch_depth: int

    def __len__(self) -> int:
        """The number of units."""
        return len(self.names)

    def sum_of(self, figure: Callable[[models.StageProfile], int]) -> Table:
        """Return the table of a figure of every profile, summed over a stage."""
        return sums([figure(profile) for profile in self.profiles])

    @cached_property
    def sent_forward(self) -> Table:
        """Bytes that a stage sends forward, by the unit behind it."""
        return np.concatenate([[0], self.column("output_bytes")])

    @cached_property
    def sent_backward(self) -> Table:
        """Bytes that a stage sends back, by its first unit."""
        return np.concatenate([self.column("gradient_bytes"), [0]])

    def column(self, attribute: str) -> Table:
        """Return an attribute of every profile, in bytes."""
        return np.array([getattr(profile, attribute) for profile in self.profiles], dtype=np.int64)


def sums(values: Sequence[int] | Table) -> Table:
    """Return the sum of ``values`` from each to before each; 0 where there are none."""
    ends = np.concatenate([[0], np.cumsum(np.asarray(values, dtype=np.int64))])
    return np.asarray(np.triu(ends[None, :] - ends[:, None]))


def maxima(values: Sequence[int] | Table) -> Table:
    """Return the largest of ``values`` from each to before each; 0 where there are none."""
    values = np.asarray(values, dtype=np.int64)
    result = np.zeros((len(values) + 1, len(values) + 1), dtype=np.int64)
    for start in range(len(values)):
        result[start, start + 1 :] = np.maximum.accumulate(values[start:])
    return result


def movable(options: runs.Options) -> bool:
    """Whether the model's layers may be cut anew: not where stages have cycles, options or branches of their own."""
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

    Raises RequestError for what is wrong with it, and OptionError for a model of more layers than can be stages.
    """
    options = request.options
    findings = runs.Findings(request.is_set)
    free = movable(options)
    layers = runs.model_layers(options, findings) if free else []
    findings.raise_if_any()
    if len(layers) > runs.MAX_STAGES:
        text = f"expected a model of at most {runs.MAX_STAGES} layers to cut, got {len(layers)}: make blocks of some"
        raise OptionError("scenario", text)
    names = [layer.spec.name for layer in layers]
    changes: dict[str, Any] = {**_DEFAULT_VALUES, "pipeline.micro_batch_size": micro_batch_size}
    if free:
        changes |= {"pipeline.stages": None, "pipeline.splits": names[1:]}
    job = assemble(time_alone(request, changes))
    profiles, outfeed = job.program.stages, job.program.outfeed
    costs = np.array([[_cycles(cost, job) for cost in _costs(profile)] for profile in profiles], dtype=np.int64).T
    first = costs.copy()
    first_trained = next((index for index, profile in enumerate(profiles) if profile.parameter_bytes), None)
    if free and job.program.shape.training:
        first[1:, :first_trained] = 0
        if first_trained:
            prefix = assemble(time_alone(request, {**changes, "pipeline.splits": names[first_trained + 1 :]}))
            first[1:, first_trained] = [_cycles(cost, prefix) for cost in _costs(prefix.program.stages[0])[1:]]
    passes = np.stack([sums(cycles) for cycles in costs])
    for kind, cycles in enumerate(first):
        passes[kind, 0] = sums(cycles)[0]
    updates = [
        _cycles(profile.update, job) if pricing.counts_update(profile, job.program, job.system) else 0
        for profile in profiles
    ]
    unit_names = tuple(names) if free else tuple(profile.name for profile in profiles)
    stash = _stash(profiles, _passing(request, changes, names, profiles), first_trained or 0 if free else 0, layers)
    training, depth = job.program.shape.training, job.program.infeed.prefetch_depth
    host = job.costs.host if outfeed.mode == "ALL" and not outfeed.accumulate else replace(job.costs.host, outfeed=0)
    return Units(
        unit_names, free, profiles, passes, sums(updates), stash, tuple(_shared_pairs(layers)), training, host, depth
    )


def _costs(profile: models.StageProfile) -> tuple[models.PassCost, ...]:
    return (profile.forward, profile.backward, *profile.halves)


def _cycles(cost: models.PassCost, job: Job) -> int:
    return pricing.pass_cycles(cost, job.system.ipu, job.system.rates)


def _passing(
    request: Request,
    changes: dict[str, Any],
    names: Sequence[str],
    profiles: Sequence[models.StageProfile],
) -> Table:
    """Return the bytes that each unit and the next keep both, of what passes between them; the last has no next.

    Two units in one stage tell. Where one keeps nothing it may hand on what it gets, and all that passes counts.
    """
    single_bytes = [profile.stash_bytes for profile in profiles]
    passing = np.array([profile.activation_bytes for profile in profiles], dtype=np.int64)
    for odd in (0, 1) if len(names) > 1 else ():
        splits = [name for unit, name in enumerate(names) if unit and unit % 2 == odd]
        pairs = assemble(time_alone(request, {**changes, "pipeline.splits": splits})).program.stages
        for number, pair in enumerate(pairs):
            unit = 2 * number - odd
            if 0 < unit < len(names) - 1 and single_bytes[unit] and single_bytes[unit + 1]:
                passing[unit] = min(passing[unit], single_bytes[unit] + single_bytes[unit + 1] - pair.stash_bytes)
    return passing


def _stash(
    profiles: Sequence[models.StageProfile], passing: Table, first_trained: int, layers: Sequence[runs.RequestedLayer]
) -> Table:
    """Return the least bytes that stages save of a micro-batch.

    Units that follow each other may keep one array, which is ``passing`` between them and counts once; with skip
    connections others too, and nothing is said.
    """
    stashed = np.array([profile.stash_bytes for profile in profiles], dtype=np.int64)
    if any(isinstance(layer.spec, runs.BuiltSpec) and layer.spec.row.kind == "add" for layer in layers):
        return np.zeros((len(stashed) + 1,) * 2, dtype=np.int64)
    table = sums(stashed - passing) + np.concatenate([[0], passing])[None, :]
    stashed[:first_trained] = 0
    passing = np.where(np.arange(len(passing)) < first_trained, 0, passing)
    table[0] = sums(stashed - passing)[0] + np.concatenate([[0], passing])
    table = np.maximum(np.triu(table, 1), 0)
    single = np.arange(len(stashed))
    table[single, single + 1] = [profile.stash_bytes for profile in profiles]
    return np.asarray(table)


def _shared_pairs(layers: Sequence[runs.RequestedLayer]) -> list[tuple[int, int]]:
    """Return the pairs of layers of which the second uses weights of the first."""
    places = {layer.spec.name: number for number, layer in enumerate(layers)}
    pairs = []
    for number, layer in enumerate(layers):
        spec = layer.spec
        if isinstance(spec, runs.BuiltSpec) and hasattr(spec.row.makes, "shared"):
            pairs += [
                (places[owner], number)
                for key in spec.row.keys
                if key.hint is core_layers.EarlierLayer and (owner := getattr(spec, key.argument)) in places
            ]
    return pairs
