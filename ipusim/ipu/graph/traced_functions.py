"""A traced step as the stages of a request: profiles and arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ipusim.api import Array, System, Workload, analysis, models, pipelines, runs
from ipusim.ipu.graph.cut import cut
from ipusim.ipu.graph.profile import ObservedStage, observe, profile_stage
from ipusim.ipu.graph.stage import GraphStage
from ipusim.ipu.graph.stage_passes import Constants, StagePasses
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.graph.update import GraphUpdate

#: Returns the values that the first stage takes of micro-batch ``index``.
Elements = Callable[[int], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class StepFeed:
    """The micro-batches of a step.

    Attributes:
        elements: values of each micro-batch.
    """

    elements: Elements

    def element(self, index: int) -> tuple[tuple[Any, ...], None]:
        """Return what the first stage takes of micro-batch ``index``."""
        return tuple(self.elements(index)), None


@dataclass(frozen=True, eq=False)
class StepFunctions:
    """The stages of a traced step; a request's ``functions``.

    Attributes:
        name: name of the program.
        step: the step.
        variables: values of all variables by shared name.
        elements: values of each micro-batch, in the order in which the first stage takes them.
        reduction: how gradients are accumulated.
        outfeed: what leaves the last stage, without its bytes.
        accumulators: dtype of a variable's gradient accumulator by its name, if it is not the variable's own.
        constants: values of tensors of outside of the step.
        first: values of a micro-batch that is tried; empty for zeros like ``elements(0)``.
        functions: names of the stages' Python functions; empty for a function without a name.
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
    functions: Sequence[str] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each computational stage."""
        return tuple(f"{self.name}_stage_{number}" for number in range(self.step.trace.stages))

    @property
    def shown_names(self) -> tuple[str, ...]:
        """The name of each stage in pictures: of its function, if no other stage has that name."""
        functions = self.functions or ("",) * len(self.names)
        return tuple(
            function if function and list(functions).count(function) == 1 else name
            for function, name in zip(functions, self.names, strict=True)
        )

    @property
    def parts(self) -> tuple[int, ...]:
        """One stage at each position."""
        return (1,) * self.step.trace.stages

    @property
    def training(self) -> bool:
        """Whether it trains."""
        return bool(self.step.trace.gradients)

    @cached_property
    def stages(self) -> tuple[GraphStage, ...]:
        """The stages as the machine executes them."""
        graph, result = self.step.graph, []
        for name, one in zip(self.names, cut(self.step.trace), strict=True):
            passes = StagePasses(graph, one)
            used = {each: self.variables[each] for each in dict.fromkeys((*passes.variables, *one.gradients))}
            trained = {each: value for each, value in used.items() if each in one.gradients}
            others = {each: value for each, value in used.items() if each not in one.gradients}
            result.append(GraphStage(name, passes, trained, others, constants=self.constants))
        return tuple(result)

    @cached_property
    def update(self) -> GraphUpdate | None:
        """The weight update; None in inference."""
        if not self.training:
            return None
        trained = {name: self.variables[name] for name in self.step.accumulators}
        nodes = self.step.weight_update()
        slots = {name: self.variables[name] for name in nodes.variables if name not in trained}
        return GraphUpdate(self.step.graph, nodes, trained, slots, self.constants, self.step.rule)

    def content(self, system: System, offload: pipelines.Offload) -> runs.Content:
        """Return what the stages cost and compute."""
        first = self._first()
        profiles = self._profiles()
        return runs.Content(
            profiles,
            sum(np.asarray(value).nbytes for value in first),
            self.outfeed,
            first[0].shape[0] if first and np.ndim(first[0]) else 1,
            result_bytes=self.outfeed.element_bytes,
            workload=self._workload,
        )

    def _first(self) -> tuple[Array, ...]:
        return tuple(np.zeros_like(value) for value in (self.elements(0) if self.first is None else self.first))

    def observed(self) -> list[ObservedStage]:
        """Run a micro-batch through all stages under observation."""
        return observe(self.step.trace, self.variables, self._first(), self.constants)

    def _profiles(self) -> tuple[models.StageProfile, ...]:
        observed = self.observed()
        own = {name: value.dtype for name, value in self.variables.items()}
        known: set[str] = set()
        profiles = []
        for number, (stage, one) in enumerate(zip(self.stages, observed, strict=True)):
            profiles.append(
                profile_stage(
                    one,
                    stage.name,
                    is_last=number == len(observed) - 1,
                    trained=stage.trained,
                    owned=[name for name in stage.trained if name not in known],
                    untrained={name: value for name, value in stage.untrained.items() if name not in known},
                    update=self.update,
                    accumulators={**own, **self.accumulators},
                    reduction=self.reduction,
                )
            )
            known |= {*stage.trained, *stage.untrained}
        return tuple(profiles)

    def _workload(self, _: int) -> Workload:
        return Workload(
            stages=self.stages,
            feed=StepFeed(self.elements),
            optimizer=self.update,
            reduction=self.reduction,
            accumulation_dtype=lambda name: self.accumulators.get(name, self.variables[name].dtype),
        )
