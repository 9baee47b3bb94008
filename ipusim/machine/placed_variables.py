"""Hold a replica's variables on their IPUs, and apply the optimizer's updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipusim.machine.stage_memory import StageMemory
from ipusim.machine.tensors import IpuMemory
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.functions.untrained import Untrained
from ipusim.model.layers.layer import Array
from ipusim.model.learning.optimizers import JointOptimizer, Optimizer, StageUpdate, State


class PlacedVariables:
    """Parameters, accumulators and optimizer state of every stage, by IPU within the replica.

    Weights are updated per stage, or by a joint optimizer across stages.

    Attributes:
        untrained: current values of variables without an optimizer, by name; replicas have separate values.
    """

    def __init__(self, copies: Sequence[Sequence[int]], optimizer: Optimizer | None) -> None:
        """Allocate the memory of every stage, for every copy of the pipeline."""
        self._copies = copies
        self._mapping = copies[0]
        self._memories = {ipu: IpuMemory() for ipu in sorted(set(self._mapping))}
        self._optimizer = optimizer
        self._joint_optimizer = optimizer if isinstance(optimizer, JointOptimizer) else None
        self._ready_ipus: set[int] = set()
        self._finish_update: Callable[[], object] | None = None
        self.untrained: dict[str, Array] = {}

    def weights(self) -> dict[str, Array]:
        """Return the current parameters across stages, keyed ``layer/W``."""
        parameters_of_stages = (self._memories[ipu].stages[stage].parameters for stage, ipu in enumerate(self._mapping))
        return {name: array for parameters in parameters_of_stages for name, array in parameters.items()}

    def slots(self) -> list[State]:
        """Return the optimizer state per stage."""
        return [self._memories[ipu].stages[stage].state for stage, ipu in enumerate(self._mapping)]

    def stages(self, ipu: int) -> dict[int, StageMemory]:
        """Return the memory of every stage on ``ipu``."""
        return self._memories[ipu].stages

    def accumulators(self, ipu: int) -> list[Array]:
        """Return the gradient accumulators of the stages on ``ipu``, in stage order."""
        stages = self._memories[ipu].stages
        return [stages[stage].accumulators[name] for stage in sorted(stages) for name in stages[stage].own_parameters]

    def begin_update(self) -> None:
        """Show this replica's gradients to the optimizer, before they are averaged over replicas."""
        if self._joint_optimizer is not None:
            with Surrounded(untrained=Untrained(self.untrained)):
                self._finish_update = self._joint_optimizer.begin(self._all_stages(), True)

    def update(self, ipu: int) -> None:
        """Update the stages on ``ipu``; a joint optimizer waits for the last IPU."""
        if self._joint_optimizer is not None:
            self._ready_ipus.add(ipu)
            if len(self._ready_ipus) == len(self._memories):
                self._ready_ipus.clear()
                with Surrounded(untrained=Untrained(self.untrained)):
                    finish = self._finish_update or self._joint_optimizer.begin(self._all_stages(), False)
                    self._finish_update = None
                    finish()
                self._copy_to_others()
        elif self._optimizer is not None:
            for stage in self._memories[ipu].stages.values():
                self._optimizer.apply(stage.own_parameters, stage.accumulators, stage.state)

    def _copy_to_others(self) -> None:
        """Copy jointly updated variables from the first copy of every stage to the others."""
        for mapping in self._copies[1:]:
            for stage, (ipu, first_ipu) in enumerate(zip(mapping, self._mapping, strict=True)):
                copy, source = (self._memories[number].stages[stage] for number in (ipu, first_ipu))
                for arrays, sources in ((copy.own_parameters, source.own_parameters), (copy.state, source.state)):
                    for name, array in arrays.items():
                        array[...] = sources[name]

    def _all_stages(self) -> list[StageUpdate]:
        stages = (self._memories[ipu].stages[stage] for stage, ipu in enumerate(self._mapping))
        return [
            StageUpdate(
                stage.own_parameters, {name: stage.accumulators[name] for name in stage.own_parameters}, stage.state
            )
            for stage in stages
        ]
