"""Gradients that a loop's body sends to the host, where the variables are; they come when it has run backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ipusim.api import Array, learning, models
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.distribution import variables_on_host
from ipusim.ipu.runtime.gradients import GradientsAndVariables
from ipusim.ipu.runtime.loop_body import BodyRecord
from ipusim.ipu.runtime.optimizer import Optimizer
from ipusim.ipu.runtime.symbolic_gradients import SymbolicGradient, loss_of
from ipusim.ipu.runtime.weight_update import IpuOptimizer, OptimizerFunctionOutput

#: The rule of an update that leaves all as it is.
_NO_STEP = learning.SGD(0.0)
Element = tuple[Array, ...]


class HostGradients:
    """The gradients among what a body enqueues: a list or a dictionary of tensors, or one."""

    def __init__(self, enqueued: Any) -> None:
        """Take the arrays that the body enqueued when it was tried."""
        self._named = isinstance(enqueued, Mapping)
        self._alone = not isinstance(enqueued, Mapping | tuple | list)
        items = _items(enqueued)
        self._keys = tuple(items)
        self._gradients = {key: item for key, item in items.items() if isinstance(item, SymbolicGradient)}
        self._receive: Callable[[Element], object] = lambda _: None
        self._element: Element = ()

    @classmethod
    def of(cls, record: BodyRecord, *, sharded: bool) -> HostGradients | None:
        """Return the gradients that a body enqueues; None where it enqueues none.

        Raises UnsupportedProgramError for those that it may not send, and where the host has the variables for an
        update on the IPU.
        """
        items = _items(record.enqueued).values()
        there = [item for item in items if isinstance(item, SymbolicGradient)]
        if not there:
            if record.train is not None and variables_on_host():
                raise UnsupportedProgramError(
                    "variables_on_host: expected apply_gradients on the host, as the variables are there: enqueue what "
                    "compute_gradients returns, and apply it behind the run; got a weight update in the body"
                )
            return None
        wrong = ""
        if not variables_on_host():
            wrong = "in the scope of a strategy with variables_on_host=True alone"
        elif record.train is not None:
            wrong = "of a body that does not update weights as well"
        elif sharded:
            wrong = "of a body on one IPU"
        elif any((opt := element.optimizer) is not None and opt.accumulation is not None for element in there):
            wrong = "of an optimizer that does not accumulate them"
        if wrong:
            raise UnsupportedProgramError(f"enqueue: expected gradients {wrong}, got {there[0]!r}")
        return cls(record.enqueued)

    def beside(self, enqueued: Any) -> Any:
        """Return the results that the body enqueues beside the gradients; their loss where there are none."""
        rest = {key: item for key, item in _items(enqueued).items() if key not in self._gradients}
        if not rest:
            return [loss_of(list(_items(enqueued).values()))]
        return rest if self._named else list(rest.values())

    def optimizer(self, enqueued: Any) -> OptimizerFunctionOutput:
        """Return the optimizer that hands the gradients out, in the place of a weight update."""
        items = _items(enqueued)
        gradients = [items[key] for key in self._gradients]
        return OptimizerFunctionOutput(_HandOut(gradients, self._hand_out), loss_of(gradients))

    def element(
        self, forms: Sequence[tuple[tuple[int, ...], Any]], packing: Callable[[list[Any]], Any]
    ) -> tuple[list[tuple[tuple[int, ...], Any]], Callable[[list[Any]], Any]]:
        """Return the forms of an element with the gradients behind the other arrays, and what makes one of all."""
        own = [(gradient.shape, gradient.dtype) for gradient in self._gradients.values()]
        return [*forms, *own], lambda arrays: self._packed(arrays[: -len(own)], arrays[-len(own) :], packing)

    def receiving(self, receive: Callable[[Element], object]) -> Callable[[Element], None]:
        """Return a receiver of an element's other arrays, which ``receive`` gets together with the gradients."""
        self._receive = receive
        return self._hold

    def _packed(self, others: list[Any], gradients: list[Any], packing: Callable[[list[Any]], Any]) -> Any:
        result = dict(zip(self._gradients, gradients, strict=True))
        keys = [key for key in self._keys if key not in result]
        if keys:
            packed = packing(others)
            result |= packed if self._named else dict(zip(keys, packed, strict=True))
        if self._named:
            return {key: result[key] for key in self._keys}
        return result[0] if self._alone else [result[key] for key in self._keys]

    def _hold(self, element: Element) -> None:
        self._element = element

    def _hand_out(self, gradients: Sequence[Array]) -> None:
        self._receive((*self._element, *gradients))


class _HandOut(IpuOptimizer, maps_gradients=False):
    """In the place of an optimizer: hands gradients out to the host, each replica its own, and changes nothing."""

    def __init__(self, gradients: Sequence[SymbolicGradient], hand_out: Callable[[Sequence[Array]], object]) -> None:
        """Take the gradients, computed by one optimizer, and what takes their values."""
        first = gradients[0].optimizer
        super().__init__(Optimizer(_NO_STEP) if first is None else first)
        self._gradients, self._hand_out = tuple(gradients), hand_out

    @property
    def rule(self) -> Any:
        """One that has no state."""
        return _NO_STEP

    @property
    def cross_replica(self) -> bool:
        """Whether gradients are averaged over replicas: where they are applied."""
        return False

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: object = None, name: str | None = None
    ) -> None:
        """Hand the gradients out."""
        values = {variable.name: gradient for gradient, variable in grads_and_vars if gradient is not None}
        with np.errstate(all="ignore"):
            self._hand_out([np.array(gradient.compute(values)) for gradient in self._gradients])


def _items(enqueued: Any) -> dict[Any, Any]:
    """Return tensors by their names, or by their places."""
    return dict(enqueued) if isinstance(enqueued, Mapping) else dict(enumerate(models.as_results(enqueued)))
