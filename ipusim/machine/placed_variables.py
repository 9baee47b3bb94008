"""The variables of one replica, on the IPUs where they lie."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.machine.ipu_memory import IpuMemory
from ipusim.machine.stage_memory import Array
from ipusim.model.learning.optimizers import State


class PlacedVariables:
    """Parameters, accumulators and the optimizer's state of every stage, by the IPU of its replica."""

    def __init__(self, mapping: Sequence[int]) -> None:
        """Make room on the IPU of each stage."""
        self._mapping = mapping
        self._memories = {ipu: IpuMemory() for ipu in sorted(set(mapping))}

    def weights(self) -> dict[str, Array]:
        """Return the parameters of all stages in one, keyed ``layer/W``, as they are now."""
        held = (self._memories[ipu].stages[stage].parameters for stage, ipu in enumerate(self._mapping))
        return {name: array for parameters in held for name, array in parameters.items()}

    def slots(self) -> list[State]:
        """Return the optimizer's state of each stage."""
        return [self._memories[ipu].stages[stage].state for stage, ipu in enumerate(self._mapping)]

    def stages_of(self, ipu: int) -> list[int]:
        """Return the stages on ``ipu``, in order."""
        return sorted(self._memories[ipu].stages)

    def variables(self, ipu: int, stage: int) -> dict[str, Array]:
        """Return the parameters of one stage, keyed ``layer/W``."""
        return self._memories[ipu].stages[stage].parameters

    def state(self, ipu: int, stage: int) -> State:
        """Return the optimizer's state for one stage."""
        return self._memories[ipu].stages[stage].state

    def accumulators(self, ipu: int) -> list[Array]:
        """Return the gradient accumulators of the stages on ``ipu``, in the order of the stages."""
        stages = self._memories[ipu].stages
        return [stages[stage].accumulators[name] for stage in sorted(stages) for name in stages[stage].own]
