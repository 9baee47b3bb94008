"""The states of Keras' recurrent layers: initial states, returned states, and states carried between batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.api import functions, layers, models
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.operations import ContinuedRecurrence
from ipusim.ipu.runtime.variable import NamedVariable, named_variable
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.ipu.tensorflow.keras.core_layer import CoreLayer
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.symbolic import Node
from ipusim.ipu.tensorflow.variables import is_trying, may_change


class RecurrentLayer(CoreLayer):
    """A recurrent layer, with its states in Keras' form: a tensor, or for an LSTM a list of two, h and c."""

    #: Bytes of the partial sums of its products.
    _partials = models.PARTIALS_BYTES["float"]

    def __init__(
        self,
        *args: Any,
        time_major: bool = False,
        return_state: bool = False,
        stateful: bool = False,
        **kwargs: Any,
    ) -> None:
        """Take whether time is the first axis, and whether states are returned, and carried to the next micro-batch.

        Raises as CoreLayer does for the core layer's own arguments.
        """
        self._time_major = checks.truth("time_major", time_major)
        self._return_state = checks.truth("return_state", return_state)
        self.stateful = checks.truth("stateful", stateful)
        self._carried: dict[str, NamedVariable] = {}
        super().__init__(*args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        return super().get_config() | {
            "time_major": self._time_major,
            "return_state": self._return_state,
            "stateful": self.stateful,
        }

    def build(self, input_shape: Any) -> None:
        """Make the weights, for inputs (batch, time steps, elements), or time steps first where these are."""
        shape = tuple(input_shape)
        if len(shape) != 3:
            checks.wrong_value("input_shape", "three axes", shape)
        super().build((None, shape[0] or 1, shape[2]) if self._time_major else shape)  # whose number weights have not

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what the layer gives; states may stand in a list behind the input, as in Keras."""
        if isinstance(inputs, list | tuple) and len(inputs) == 1 + self._layer.states:  # type: ignore[attr-defined]
            inputs, *states = inputs
            kwargs["initial_state"] = states[0] if len(states) == 1 else states
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, initial_state: Any = None, **_: Any) -> Any:
        """Return the outputs, and with ``return_state`` the states after the last time step.

        Raises ProgramError for an initial state of another form.
        """
        x = self._turned(tensor(inputs))
        if not self._has_states(initial_state):
            return self._turned(super().call(x, training=training))
        return self._continued(x, self._of_model(x), initial_state, training)

    def _has_states(self, initial_state: Any) -> bool:
        return self._return_state or self.stateful or initial_state is not None

    def _continued(self, x: Any, variables: Mapping[str, NamedVariable], value: Any, training: bool | None) -> Any:
        """Run from states: those given, those of the micro-batch before where the layer is stateful, else zeros."""
        layer = self._layer
        assert isinstance(layer, layers.LSTM | layers.GRU)
        x = self._dropped(x, self._trains(training))
        parameters = {name: variable.read_value() for name, variable in variables.items()}
        carried = self._carried_states(x) if self.stateful and not is_trying() else ()
        states = self._states(value, x) if value is not None else tuple(item.read_value() for item in carried)
        if not states:
            states = tuple(np.zeros((x.shape[0], layer.units), x.dtype) for _ in range(layer.states))
        operation = ContinuedRecurrence(layer, tuple(parameters), self._partials)
        y, *after = functions.operate(operation, x, *parameters.values(), *states)
        for variable, state in zip(carried, after, strict=False) if may_change() else ():
            variable.assign(state)
        y = self._turned(y)
        return self._with_state(y, after) if self._return_state else y

    def _states(self, value: Any, x: Any) -> tuple[Any, ...]:
        """Return given states in the core's order; raises ProgramError for others."""
        shape = (x.shape[0], self._layer.units)  # type: ignore[attr-defined]
        result = self._from_state(value)
        for item in result:
            if tuple(np.shape(item)) != shape:
                checks.wrong_value("initial_state", f"tensors of shape {shape}", np.shape(item))
        return tuple(tensor(item) for item in result)

    def _carried_states(self, x: Any) -> tuple[NamedVariable, ...]:
        """Return the variables that hold the states behind the last micro-batch."""
        zeros = np.zeros((x.shape[0], self._layer.units), x.dtype)  # type: ignore[attr-defined]
        names = [f"{self.path}/state_{number}" for number in range(self._layer.states)]  # type: ignore[attr-defined]
        return tuple(self._carried.setdefault(name, named_variable(name, zeros, False)) for name in names)

    def reset_states(self) -> None:
        """Begin with zeros again."""
        for item in self._carried.values():
            item.set(np.zeros(item.shape, item.dtype))

    def _from_state(self, value: Any) -> Sequence[Any]:
        """Return the states in the core's order; raises ProgramError for another number of them."""
        result = list(value) if isinstance(value, list | tuple) else [value]
        count: int = self._layer.states  # type: ignore[attr-defined]
        if len(result) != count:
            checks.wrong_value("initial_state", f"{count} tensor{'s, h and c' if count > 1 else ''}", result)
        return result

    def _with_state(self, y: Any, states: Sequence[Any]) -> Any:
        """Return the outputs and states as a call returns them."""
        return [y, *states]

    def _run(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        if self.in_model or self.built or is_trying():
            return super()._run(inputs, *args, training=training, **kwargs)
        x, value = self._turned(tensor(inputs)), (*args, kwargs.pop("initial_state", None))[0]
        if not self._has_states(value):
            return self._turned(super()._run(x, training=training, **kwargs))
        functions.check_inside(self.name)
        self._layer.output_shape(tuple(x.shape[1:]))
        self._settle()
        return self._continued(x, self._of_program(x, self.path), value, training)

    def _gives(self, node: Node) -> Any:
        beside = len(node.args) > 1 or bool(node.kwargs.get("initial_state") is not None)
        tried = self._time_major or self._has_states(None) or beside
        return Layer._gives(self, node) if tried else super()._gives(node)

    def _turned(self, x: Any) -> Any:
        return anp.swapaxes(x, 0, 1) if self._time_major and anp.ndim(x) == 3 else x

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        return super()._applied(self._dropped(x, training), variables, training)

    def _dropped(self, x: Any, training: bool) -> Any:
        """Return the input as the recurrence takes it, in training or not."""
        return x
