"""Real arithmetic inside the simulated machine: each IPU's tensors, and the passes that consume and make them.

A tensor is on one IPU only. What a pass makes waits in its IPU's outbox until
the copy that ends the time-step moves it; what a pass needs must lie on its own
IPU when it starts. So an order that is wrong, or a stage on a wrong IPU, stops
the run because a tensor is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.errors import MissingTensorError
from ipusim.model.workload import Workload
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Edge
from ipusim.pipeline.program import PlanShape

Array = npt.NDArray[Any]


class Payload(NamedTuple):
    """What travels from one step to the next: activations and labels forward, a gradient backward."""

    tensor: Any  # an array, or None from the last forward to its backward
    labels: Array | None = None


@dataclass
class StageMemory:
    """What a stage keeps on its IPU: weights, optimizer state, gradient accumulators."""

    parameters: dict[str, Array]
    state: Any
    accumulators: dict[str, Array]


@dataclass
class IpuMemory:
    """All tensors on one IPU, by what they are for.

    Attributes:
        stages: the stages that live here.
        arrived: inputs by (step, micro-batch), delivered by a copy or the infeed.
        inputs: stage inputs kept for recomputation, by (stage, micro-batch).
        saved: what a forward keeps for its backward, by (stage, micro-batch).
        outbox: outputs by (step, micro-batch) that wait for the next copy.
    """

    stages: dict[int, StageMemory] = field(default_factory=dict)
    arrived: dict[tuple[int, int], Payload] = field(default_factory=dict)
    inputs: dict[tuple[int, int], Payload] = field(default_factory=dict)
    saved: dict[tuple[int, int], Any] = field(default_factory=dict)
    outbox: dict[tuple[int, int], Payload] = field(default_factory=dict)


class NumpyExecutor:
    """Executes a workload's stages on the IPUs of a plan.

    Attributes:
        results: what the host received, in order: the loss of a micro-batch in
            training, the last stage's output in inference.
    """

    def __init__(self, shape: PlanShape, workload: Workload) -> None:
        """Place the stages' initial parameters on their IPUs."""
        self._shape = shape
        self._workload = workload
        self._optimizer = workload.optimizer
        self._scale: Any = workload.dtype.type(1 / shape.count) if workload.reduction == "MEAN" else None
        self._memories = {ipu: IpuMemory() for ipu in sorted(set(shape.mapping))}
        self._ipu_of_step = shape.ipu_of_step
        self._edges: Sequence[Edge] = ()
        self._next_step: dict[int, int] = {}
        self._execution = 0
        self._outputs: dict[int, Array] = {}
        self.results: list[Array] = []
        for stage, ipu in enumerate(shape.mapping):
            parameters = workload.initial_parameters(stage)
            self._memories[ipu].stages[stage] = StageMemory(
                parameters=parameters,
                state=self._optimizer.initial_state(parameters) if self._optimizer else None,
                accumulators={name: np.zeros_like(array) for name, array in parameters.items()},
            )

    def stage_parameters(self) -> list[dict[str, Array]]:
        """Return the parameters of each stage, keyed ``layer/W``, as they are now."""
        return [self._memories[ipu].stages[stage].parameters for stage, ipu in enumerate(self._shape.mapping)]

    def weights(self) -> dict[str, Array]:
        """Return the parameters of all stages in one, keyed ``layer/W``, as they are now."""
        return {name: array for parameters in self.stage_parameters() for name, array in parameters.items()}

    def begin(self, execution: int) -> None:
        """Zero the accumulators, as Graphcore's compiler does before every execution of the pipeline."""
        self._execution = execution
        self._outputs.clear()
        for memory in self._memories.values():
            for stage in memory.stages.values():
                for accumulator in stage.accumulators.values():
                    accumulator[...] = 0

    def infeed(self, ipu: int, micro_batch: int) -> None:
        """Take the next element of the feed onto ``ipu``."""
        x, labels = self._workload.feed.element(self._execution * self._shape.count + micro_batch)
        self._memories[ipu].arrived[0, micro_batch] = Payload(x, labels)

    def run(self, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        """Run one pass on ``ipu``; raises MissingTensorError if a tensor that it needs is not there."""
        memory = self._memories[ipu]
        if stage not in memory.stages:
            raise MissingTensorError(
                f"IPU {ipu} cannot run {Op(Pass(kind), stage, micro_batch)}: it does not hold the parameters of "
                f"stage {stage}, which live on IPU {self._shape.mapping[stage]}"
            )
        if kind == Pass.FORWARD:
            self._forward(ipu, memory, stage, micro_batch)
        elif kind == Pass.BACKWARD:
            self._backward(ipu, memory, stage, micro_batch)
        else:
            self._recompute(ipu, memory, stage, micro_batch)

    def copy(self, edges: Sequence[Edge]) -> None:
        """Move every output along its edge to the IPU of the next step."""
        if edges is not self._edges:  # the same few tuples come again after every time-step
            self._edges, self._next_step = edges, dict(edges)
        for memory in self._memories.values():
            for (step, micro_batch), payload in memory.outbox.items():
                target = self._next_step.get(step)
                if target is not None:
                    self._memories[self._ipu_of_step[target]].arrived[target, micro_batch] = payload
            memory.outbox.clear()

    def outfeed(self, micro_batch: int) -> None:
        """Hand the last stage's result of ``micro_batch`` to the host."""
        self.results.append(self._outputs.pop(micro_batch))

    def update(self, ipu: int) -> None:
        """Apply the accumulated gradients of every stage on ``ipu``."""
        if self._optimizer is not None:
            for stage in self._memories[ipu].stages.values():
                self._optimizer.apply(stage.parameters, stage.accumulators, stage.state)

    def _forward(self, ipu: int, memory: IpuMemory, stage: int, micro_batch: int) -> None:
        op = Op(Pass.FORWARD, stage, micro_batch)
        payload: Payload = self._take(memory.arrived, (stage, micro_batch), ipu, op, "its input")
        output, saved = self._workload.stages[stage].forward(
            memory.stages[stage].parameters, payload.tensor, payload.labels
        )
        last = stage == self._shape.stages - 1
        if last:
            self._outputs[micro_batch] = output
        if self._shape.training:
            if self._shape.recompute and not last:
                memory.inputs[stage, micro_batch] = payload
            else:
                memory.saved[stage, micro_batch] = saved
        memory.outbox[stage, micro_batch] = Payload(None) if last else Payload(output, payload.labels)

    def _recompute(self, ipu: int, memory: IpuMemory, stage: int, micro_batch: int) -> None:
        op = Op(Pass.RECOMPUTE, stage, micro_batch)
        payload: Payload = self._take(memory.inputs, (stage, micro_batch), ipu, op, "the kept input of its forward")
        _, memory.saved[stage, micro_batch] = self._workload.stages[stage].forward(
            memory.stages[stage].parameters, payload.tensor, payload.labels
        )

    def _backward(self, ipu: int, memory: IpuMemory, stage: int, micro_batch: int) -> None:
        op = Op(Pass.BACKWARD, stage, micro_batch)
        step = 2 * self._shape.stages - 1 - stage
        saved = self._take(memory.saved, (stage, micro_batch), ipu, op, "what its forward keeps for it")
        payload: Payload = self._take(memory.arrived, (step, micro_batch), ipu, op, "the gradient of its output")
        home = memory.stages[stage]

        def accumulate(name: str, gradient: Array) -> None:
            accumulator = home.accumulators[name]
            np.add(accumulator, gradient if self._scale is None else gradient * self._scale, out=accumulator)

        gradient = self._workload.stages[stage].backward(home.parameters, saved, payload.tensor, stage > 0, accumulate)
        memory.outbox[step, micro_batch] = Payload(gradient)

    def _take(self, store: dict[tuple[int, int], Any], key: tuple[int, int], ipu: int, op: Op, what: str) -> Any:
        """Take a tensor that ``op`` needs out of ``ipu``'s memory; raises MissingTensorError if it is not there."""
        try:
            return store.pop(key)
        except KeyError:
            raise MissingTensorError(
                f"IPU {ipu} cannot run {op} in execution {self._execution}: {what} is not there"
            ) from None
