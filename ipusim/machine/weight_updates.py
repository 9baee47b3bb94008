"""The arithmetic of a replica's weight updates: stage by stage, or by an optimizer that looks at all stages at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ipusim.machine.ipu_memory import IpuMemory
from ipusim.machine.stage_memory import Array
from ipusim.model.functions.untrained import Untrained, holding
from ipusim.model.learning.optimizers import JointOptimizer, Optimizer, Updated


class WeightUpdates:
    """What an optimizer does with the gradients of all stages of a replica."""

    def __init__(
        self,
        optimizer: Optimizer | None,
        mapping: Sequence[int],
        memories: Mapping[int, IpuMemory],
        untrained: dict[str, Array],
    ) -> None:
        """Take the IPU of each stage and what lies there, and the variables that no optimizer trains."""
        self._optimizer, self._mapping, self._memories, self._untrained = optimizer, mapping, memories, untrained
        self._joint = optimizer if isinstance(optimizer, JointOptimizer) else None
        self._updated: set[int] = set()
        self._rest: Callable[[], object] | None = None

    def begin(self) -> None:
        """Let the optimizer see this replica's gradients before they are averaged over replicas."""
        if self._joint is not None:
            with holding(Untrained(self._untrained)):
                self._rest = self._joint.begin(self._all_stages(), True)

    def update(self, ipu: int) -> None:
        """Apply the accumulated gradients of every stage on ``ipu``; of all stages at once when the last IPU comes."""
        if self._joint is not None:
            self._updated.add(ipu)
            if len(self._updated) == len(self._memories):
                self._updated.clear()
                with holding(Untrained(self._untrained)):
                    rest = self._rest or self._joint.begin(self._all_stages(), False)
                    self._rest = None
                    rest()
        elif self._optimizer is not None:
            for stage in self._memories[ipu].stages.values():
                self._optimizer.apply(stage.own, stage.accumulators, stage.state)

    def _all_stages(self) -> list[Updated]:
        stages = (self._memories[ipu].stages[stage] for stage, ipu in enumerate(self._mapping))
        return [
            Updated(stage.own, {name: stage.accumulators[name] for name in stage.own}, stage.state) for stage in stages
        ]
