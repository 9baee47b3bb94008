"""Turn a traced step into the stages of a run request, with their costs and their arithmetic."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from ipusim.api import Array, System, Workload, analysis, models, pipelines, runs
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.graph.averaging import Averaged, Averaging
from ipusim.ipu.graph.checkpoints import Sections, sections_of
from ipusim.ipu.graph.cut import cut_stages, with_sums
from ipusim.ipu.graph.enqueued import EnqueueItem, copies_to_host
from ipusim.ipu.graph.node import Graph, Output
from ipusim.ipu.graph.profile import ObservedStage, OutfeedSum, computed_again, observe, profile_stage
from ipusim.ipu.graph.registry import value_of
from ipusim.ipu.graph.stage import GraphStage
from ipusim.ipu.graph.stage_passes import Constants, StagePasses
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.graph.update import GraphUpdate

#: Returns the first stage's input values for micro-batch ``index``.
Elements = Callable[[int], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class StepFeed:
    """Micro-batches of a step.

    Attributes:
        elements: returns a micro-batch's values.
    """

    elements: Elements

    def element(self, index: int) -> tuple[tuple[Any, ...], None]:
        """Return the first stage's inputs for micro-batch ``index``."""
        return tuple(self.elements(index)), None


@dataclass(frozen=True, eq=False)
class StepFunctions:
    """Stages of a traced step, used as a request's ``functions``.

    Attributes:
        name: name of the program.
        step: the step.
        variables: values of all variables by shared name.
        elements: returns the values of a micro-batch, ordered like the first stage's inputs.
        reduction: rule that accumulates gradients: sum, mean or running mean.
        outfeed: outfeed of the last stage, without byte counts.
        accumulators: dtype of the gradient accumulator by variable name, for accumulators whose dtype differs from the
            variable's dtype.
        constants: values of tensors from outside the step.
        first: values with the shapes of the micro-batch that is observed; if None, ``elements(0)`` gives the shapes.
        picture_names: names of stages in pictures; a stage with an empty text keeps its own name.
        averages: whether replicas average gradients; None if a node of the update decides.
        from_checkpoints: whether backward passes recompute stages from checkpoints.
    """

    name: str
    step: TracedStep
    variables: Mapping[str, Array]
    elements: Elements
    reduction: models.Reduction = "SUM"
    outfeed: pipelines.Outfeed = field(default_factory=lambda: pipelines.Outfeed(names=(analysis.LOSS,), mask=(False,)))
    accumulators: Mapping[str, np.dtype[Any]] = field(default_factory=dict)
    constants: Constants = field(default_factory=dict)
    first: Sequence[Any] | None = None
    picture_names: Sequence[str] = ()
    averages: bool | None = None
    from_checkpoints: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Name per computational stage; concurrent stages share a name."""
        return tuple(f"{self.name}_stage_{position}" for position in range(len(self.parts)))

    @property
    def shown_names(self) -> tuple[str, ...]:
        """Stage names in pictures, with separate names for concurrent stages."""
        return tuple(name or stage.name for name, stage in zip_longest(self.picture_names, self.stages))

    @property
    def parts(self) -> tuple[int, ...]:
        """Number of stages per position."""
        return tuple(map(len, self.step.trace.positions))

    @property
    def sums_gradients(self) -> bool:
        """Whether replicas sum or average gradients before a weight update; True in inference, without effect."""
        averages = self.step.averages if self.averages is None else self.averages
        return not self.training or (self._averaging is not None if averages is None else averages)

    @property
    def training(self) -> bool:
        """Whether the step trains."""
        return bool(self.step.trace.gradients)

    @cached_property
    def stages(self) -> tuple[GraphStage, ...]:
        """Stages in the machine's form."""
        graph, gradients, result = self.step.graph, self.step.trace.gradients, []
        for number, stage_cut in enumerate(cut_stages(self.step.trace)):
            position = self.step.trace.position_of[number]
            neighbours = self.step.trace.positions[position]
            name = self.names[position] + (f"_{number - neighbours[0]}" if len(neighbours) > 1 else "")
            passes = StagePasses(graph, stage_cut)
            values = {
                variable: self.variables[variable]
                for variable in dict.fromkeys((*passes.variables, *stage_cut.gradients))
            }
            trained_variables = {variable: value for variable, value in values.items() if variable in gradients}
            untrained = {variable: value for variable, value in values.items() if variable not in gradients}
            sections, is_last = self._sections[number], position == len(self.parts) - 1
            recomputed = None if sections is None else computed_again(stage_cut, sections, is_last=is_last)
            result.append(
                GraphStage(
                    name, passes, trained_variables, untrained, constants=self.constants, recomputed_tensors=recomputed
                )
            )
        result[-1] = replace(result[-1], hands=self.step.trace.update_inputs)
        return tuple(result)

    @cached_property
    def update(self) -> GraphUpdate | None:
        """Weight update; None in inference."""
        if not self.training:
            return None
        trained_variables = {name: self.variables[name] for name in self.step.accumulators}
        nodes = self.step.weight_update()
        slots = {name: self.variables[name] for name in nodes.variables if name not in trained_variables}
        handed_values = self.observed[-1].gives[len(self.step.trace.results) :]
        value_of = {**self.constants, **dict(zip(self.step.trace.update_inputs, handed_values, strict=True))}
        constants = ChainMap(dict[Output, Any](), self.constants, value_of)  # type: ignore[arg-type]
        return GraphUpdate(self.step.graph, nodes, trained_variables, slots, constants, self.step.rule, self._averaging)

    @cached_property
    def _graph(self) -> Graph:
        return with_sums(self.step.graph, cut_stages(self.step.trace))

    @cached_property
    def _sections(self) -> list[Sections | None]:
        """Forward pass per stage, divided at the checkpoints for recomputation; None if nothing is recomputed."""
        cuts = cut_stages(self.step.trace)
        uses = self.training and self.from_checkpoints
        return [sections_of(self._graph, stage_cut) if uses else None for stage_cut in cuts]

    @cached_property
    def _averaging(self) -> Averaging | None:
        return self.step.averaging() if self.training else None

    @cached_property
    def _first(self) -> tuple[Array, ...]:
        """Values of the micro-batch for observation."""
        return tuple(np.zeros_like(value) for value in (self.elements(0) if self.first is None else self.first))

    @cached_property
    def observed(self) -> list[ObservedStage]:
        """Stages after one observed micro-batch."""
        return observe(self.step.trace, self.variables, self._first, self.constants)

    def content(self, system: System, offload: pipelines.Offload) -> runs.Content:
        """Return the stages' costs and arithmetic; raises UnsupportedProgramError for unsimulated features."""
        if offload.weights:
            self._check_weight_sharding()
        first, profiles = self._first, self._profiles()
        _check_group_sizes(profiles, system.replicas)
        if not self.sums_gradients and system.replicas > 1 and not _exchange_gradients(profiles):
            raise UnsupportedProgramError(
                f"optimizer_function: replicas that learn by themselves are not simulated, and this device has "
                f"{system.replicas}: expected a CrossReplicaOptimizer around the optimizer, or a device of "
                f"{system.shards} IPUs"
            )
        if system.hosts > 1 and self._runs_in_pass(Averaged):
            raise UnsupportedProgramError(
                "CrossReplicaOptimizer: expected one host in a loop that changes gradients before it applies them, got "
                f"{system.hosts}: write a pipeline, which has a separate weight update"
            )
        element_bytes = self.outfeed.element_bytes or self._sent_bytes()
        outfeed = replace(self.outfeed, element_bytes=element_bytes)
        return runs.Content(
            profiles,
            sum(np.asarray(value).nbytes for value in first),
            outfeed,
            first[0].shape[0] if first and np.ndim(first[0]) and first[0].shape[0] else 1,
            result_bytes=outfeed.element_bytes,
            sums_gradients=self.sums_gradients,
            workload=self._workload,
        )

    def _check_weight_sharding(self) -> None:
        """Raise UnsupportedProgramError if several stages use a variable, whose weights cannot be sharded then."""
        use_counts = Counter(name for stage in self.stages for name in stage.trained_variables)
        shared_names = [name for name, count in use_counts.items() if count > 1]
        if shared_names:
            raise UnsupportedProgramError(
                f"replicated_weight_sharding: expected each variable in one stage, got {shared_names[0]!r} in several"
            )

    def _profiles(self) -> tuple[models.StageProfile, ...]:
        observed = self.observed
        dtypes = {name: value.dtype for name, value in self.variables.items()}
        owned_names: set[str] = set()
        profiles = []
        for number, (stage, record) in enumerate(zip(self.stages, observed, strict=True)):
            is_last = number == len(observed) - 1
            profile = profile_stage(
                record,
                stage.name,
                is_last=is_last,
                trained_variables=stage.trained_variables,
                owned=[name for name in stage.trained_variables if name not in owned_names],
                untrained={name: value for name, value in stage.untrained.items() if name not in owned_names},
                update=self.update,
                accumulators={**dtypes, **self.accumulators},
                reduction=self.reduction,
                graph=self._graph,
                sections=self._sections[number],
                outfeed_sum=self._outfeed_sum(record) if is_last and self.outfeed.accumulate else None,
            )
            copies = copies_to_host(record.nodes) if self._runs_in_pass(EnqueueItem) else ()
            calls = (*profile.forward_host_calls, *copies)
            profiles.append(replace(profile, forward_host_calls=calls))
            owned_names |= {*stage.trained_variables, *stage.untrained}
        return tuple(profiles)

    def _runs_in_pass(self, kind: type) -> bool:
        """Tell whether forward passes contain Graphcore's operation with an object of some kind."""
        nodes, owners = self.step.graph.nodes, self.step.trace.owners
        return any(name in nodes and value_of(nodes[name], kind) is not None for name in owners)

    def _outfeed_sum(self, last: ObservedStage) -> OutfeedSum:
        """Return the elements of the last stage's results that an execution accumulates."""
        outputs = [np.asarray(last.gives[index]) for index in self.outfeed.sent_indices]
        dtype = self.outfeed.accumulate_dtype
        width = max((np.dtype(dtype or value.dtype).itemsize for value in outputs), default=1)
        return OutfeedSum(sum(value.size for value in outputs), width)

    def _sent_bytes(self) -> int:
        """Return the outfeed's bytes per element, from the observed micro-batch."""
        dtype = self.outfeed.accumulate_dtype
        outputs = [np.asarray(self.observed[-1].gives[index]) for index in self.outfeed.sent_indices]
        return sum(value.size * np.dtype(dtype or value.dtype).itemsize for value in outputs)

    def _workload(self, _: int) -> Workload:
        """Return a replica's arithmetic; the last stage hands values to the weight update of the replica."""
        update_values: dict[Output, Any] = {}
        last = replace(self.stages[-1], update_values=update_values)
        return Workload(
            stages=(*self.stages[:-1], last),
            feed=StepFeed(self.elements),
            optimizer=None if self.update is None else self.update.of_replica(update_values),
            reduction=self.reduction,
            accumulation_dtype=lambda name: self.accumulators.get(name, self.variables[name].dtype),
        )


def _check_group_sizes(profiles: Sequence[models.StageProfile], replicas: int) -> None:
    """Raise ProgramError if the group size of a collective does not divide the device's replicas."""
    for profile in profiles:
        for call in (*profile.forward_collectives, *profile.backward_collectives):
            if call.operation == "all_to_all":
                fits, requirement = call.group == replicas, f"the number of replicas of the device, {replicas}"
            else:
                fits = call.group is None or replicas % call.group == 0
                requirement = f"a divisor of the number of the device's replicas, {replicas}"
            if fits:
                continue
            argument = "replica_group_size" if call.operation == "all_reduce" else "replication_factor"
            raise ProgramError(f"{argument}: expected {requirement}, got {call.group} in stage {profile.name!r}")


def _exchange_gradients(profiles: Sequence[models.StageProfile]) -> bool:
    """Tell whether backward passes call collectives and send no gradients to host tables."""
    return any(profile.backward_collectives for profile in profiles) and not any(
        profile.tables.gradients for profile in profiles
    )
