"""Put a traced stage into the form that the machine executes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.api import Array, functions
from ipusim.ipu.graph.cut import StageCut
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.node import Output, Variable
from ipusim.ipu.graph.stage_passes import Constants, StagePasses

#: Values sent between stages.
Values = tuple[Any, ...]
#: Seed of random draws outside training, where a caller passes no key.
_NO_KEY = (0,)


@dataclass(frozen=True, eq=False)
class GraphStage:
    """A computational stage of nodes traced by TensorFlow; a :class:`~ipusim.model.stages.stage.Stage`.

    Attributes:
        name: name of the stage.
        passes: forward and backward pass.
        trained_variables: initial values of variables with a gradient in the backward pass, by shared name.
        untrained: initial values of other variables by shared name.
        layers: names of layers among the nodes.
        constants: values of tensors from outside the step.
        update_values: last micro-batch's values for the weight update, written by the last stage.
        hands: tensors of ``update_values``; the forward pass returns them after the outputs for the next stage.
        recomputed_tensors: tensors that the backward pass recomputes from checkpoints; None if nothing is recomputed.
    """

    name: str
    passes: StagePasses
    trained_variables: Mapping[str, Array]
    untrained: Mapping[str, Array]
    layers: tuple[str, ...] = ()
    constants: Constants = field(default_factory=dict)
    update_values: dict[Output, Any] = field(default_factory=dict)
    hands: tuple[Output, ...] = ()
    recomputed_tensors: frozenset[Output] | None = None
    needs_input_gradient: ClassVar = True  # TensorFlow has already left out unused gradients
    frozen_names: ClassVar[frozenset[str]] = frozenset()
    stores: ClassVar[tuple[str, ...]] = ()
    fetches: ClassVar[tuple[str, ...]] = ()

    @property
    def recomputes_itself(self) -> bool:
        """Whether the backward pass recomputes values from checkpoints."""
        return self.recomputed_tensors is not None

    def initial_parameters(self, seed: int, dtype: npt.DTypeLike) -> dict[str, Array]:
        """Return copies of the trained variables' initial values, without a change of dtype."""
        return {name: np.array(value) for name, value in self.trained_variables.items()}

    def initial_untrained(self) -> dict[str, Array]:
        """Return initial values of the untrained variables."""
        values = {name: np.array(value) for name, value in self.untrained.items()}
        for value in values.values():
            value.flags.writeable = False
        return values

    def bind(self, parameters: Mapping[str, Array]) -> BoundGraph:
        """Return the passes bound to ``parameters``."""
        return BoundGraph(self, parameters)


class BoundGraph:
    """Runs a stage's passes on variables that are updated in place."""

    def __init__(self, stage: GraphStage, parameters: Mapping[str, Array]) -> None:
        """Take the trained variables."""
        self._stage = stage
        self._trained_variables = {name: Variable(name, parameters[name]) for name in stage.trained_variables}
        self._variable_ids = {id(parameters[name]) for name in stage.trained_variables}

    def forward(self, x: Sequence[Any], labels: Array | None, key: tuple[int, ...] | None = None) -> tuple[Values, Any]:
        """Run the forward pass; return the stage's outputs and the state for the backward pass."""
        stage, state = self._stage, functions.surroundings().untrained
        variables = dict(self._trained_variables)
        if state is not None:
            variables |= {name: Variable(name, state.read(name, value)) for name, value in stage.untrained.items()}
        untrained = {name: variable.value for name, variable in variables.items() if name in stage.untrained}
        invocation = Invocation(variables, _NO_KEY if key is None else key)
        outputs, stash = stage.passes.forward(invocation, x, stage.constants)
        if state is not None:
            for name in stage.untrained:
                if variables[name].assigned:
                    state.write(name, variables[name].value)
        results = tuple(map(self._copy_if_owned, outputs))
        stage.update_values.update(zip(stage.hands, results[len(results) - len(stage.hands) :], strict=True))
        outputs = results[: len(results) - len(stage.hands)]
        if stage.recomputed_tensors is None:
            return outputs, (stash, variables, invocation.key)
        pairs = zip(stage.passes.stage_cut.keeps, stash, strict=True)
        tensors = {tensor: value for tensor, value in pairs if tensor not in stage.recomputed_tensors}
        return outputs, (_Checkpoint(tuple(x), tensors, untrained), variables, invocation.key)

    def backward(
        self, saved_values: Any, grad: Values | None, need_input_gradient: bool, receive: Any, totals: Any = None
    ) -> Values:
        """Run the backward pass; pass variables' gradients to ``receive``, return inputs' gradients."""
        input_gradients, gradients = self.backward_input(saved_values, grad, need_input_gradient)
        self.backward_weights(gradients, receive, totals)
        return input_gradients

    def backward_input(
        self, saved_values: Any, grad: Values | None, need_input_gradient: bool
    ) -> tuple[Values, dict[str, Array]]:
        """Run the whole backward pass; return variables' gradients without passing them on."""
        (stash, variables, key), stage_cut = saved_values, self._stage.passes.stage_cut
        arriving: Values = grad or ()
        if stage_cut.packs is not None:
            gradient_of = {tensor: value for part in arriving if part is not None for tensor, value in part.items()}
            arriving = tuple(gradient_of[tensor] for tensor in stage_cut.arrives)
        if isinstance(stash, _Checkpoint):
            stash = self._recompute(stash, key)
        invocation = Invocation(variables, key)
        input_gradients, gradients = self._stage.passes.backward(invocation, stash, arriving, self._stage.constants)
        return input_gradients if stage_cut.packs is None else _pack(input_gradients, stage_cut), gradients

    def backward_weights(self, gradients: Mapping[str, Array], receive: Any, totals: Any = None) -> None:
        """Pass variables' gradients to ``receive``."""
        for name, gradient in gradients.items():
            receive(name, np.asarray(gradient, self._stage.trained_variables[name].dtype))

    def _recompute(self, stash: _Checkpoint, key: tuple[int, ...]) -> Values:
        """Return the backward pass's inputs, recomputed on the variables seen by the forward pass."""
        passes = self._stage.passes
        variables = {
            **self._trained_variables,
            **{name: Variable(name, value) for name, value in stash.untrained.items()},
        }
        _, values = passes.forward(Invocation(variables, key), stash.inputs, self._stage.constants)
        pairs = zip(passes.stage_cut.keeps, values, strict=True)
        return tuple(stash.tensors.get(tensor, value) for tensor, value in pairs)

    def _copy_if_owned(self, value: Any) -> Array:
        """Return a value as an array safe from updates, copying variables and their views."""
        array = np.asarray(value)
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        return array.copy() if id(owner) in self._variable_ids else array


class _Checkpoint(NamedTuple):
    """State of a forward pass in a stage with checkpoints.

    Attributes:
        inputs: input values of the stage.
        tensors: values of tensors that are not recomputed.
        untrained: untrained variables before the pass.
    """

    inputs: Values
    tensors: dict[Output, Any]
    untrained: dict[str, Array]


class _Gradients(dict[Output, Any]):
    """Gradients on the way back, by tensor; concurrent stages' gradients are merged."""

    def __add__(self, other: _Gradients) -> _Gradients:
        """Return the union of two dictionaries of gradients."""
        return _Gradients(self | other)


def _pack(input_gradients: Values, stage_cut: StageCut) -> Values:
    """Return gradients grouped by previous stage, padded with None to the stage's number of outputs."""
    values, packed = dict(zip(stage_cut.returns, input_gradients, strict=True)), []
    for width, tensors in stage_cut.packs or ():
        packed += [_Gradients({tensor: values[tensor] for tensor in tensors}), *[None] * (width - 1)][:width]
    return tuple(packed)
