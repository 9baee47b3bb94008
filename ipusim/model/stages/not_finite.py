"""Find the layer that created the first non-finite value of a micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.model.functions.users_code import line_of, message_of
from ipusim.model.layers.join import Join
from ipusim.model.layers.layer import Array, Key, Parameters
from ipusim.model.layers.network import NamedLayer
from ipusim.model.stages.stage import LayerStage, Stage


def is_finite(arrays: Any) -> bool:
    """Whether every number of an array, or of a tuple of arrays, is finite."""
    results = arrays if isinstance(arrays, tuple) else (arrays,)
    return all(bool(np.isfinite(array).all()) for array in results)


def origin(stage: Stage, parameters: Parameters, x: Any, labels: Array | None, key: Key | None) -> str:
    """Return in words the origin of the first non-finite value, from a repeated forward pass of ``stage``.

    For a Python function the text includes the line, if NumPy detected the value there.
    """
    if not is_finite(x):
        return "the samples of the data"
    if not isinstance(stage, LayerStage):
        return f"the function{_floating_point_error(lambda: stage.bind(parameters).forward(x, labels, key))}"
    findings: list[_WatchedLayer] = []
    watched_stage = replace(
        stage,
        named_layers=tuple(_watch(named_layer, findings) for named_layer in stage.named_layers),
        loss=None if stage.loss is None else _watch(stage.loss, findings),
    )
    watched_stage.bind(parameters).forward(x, labels, key)
    return findings[0].words() if findings else "a sum"  # joins, such as the sum of two values, are not watched


class _WatchedLayer:
    """Layer or loss that records itself in ``findings`` when finite input gives non-finite output."""

    def __init__(self, name: str, layer: Any, findings: list[_WatchedLayer]) -> None:
        self._name, self._layer, self._findings = name, layer, findings

    @property
    def shared_parameters(self) -> Any:
        """Shared parameters of the layer; a property, since protocols inspect the class."""
        return getattr(self._layer, "shared_parameters", {})

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of the layer."""
        return getattr(self._layer, name)

    def forward(self, *arguments: Any) -> Any:
        """Run the layer, and record a non-finite result."""
        result = self._layer.forward(*arguments)
        if not self._findings and not is_finite(result[0]):
            self._findings.append(self)
            self._arguments = arguments
        return result

    def words(self) -> str:
        """Return the layer's name, and NumPy's message in a repeated run."""
        return f"layer {self._name!r}{_floating_point_error(lambda: self._layer.forward(*self._arguments))}"


def _floating_point_error(run: Callable[[], object]) -> str:
    """Return NumPy's message on the first non-finite value in ``run``, in brackets; empty without a message."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            run()
    except ModelError as error:  # from a Python layer, including the line
        return f" ({error})"
    except Exception as error:
        line = line_of(error)
        return f" ({line}: {message_of(error)})" if line else f" ({message_of(error)})"
    return ""


def _watch(named_layer: NamedLayer[Any], findings: list[_WatchedLayer]) -> NamedLayer[Any]:
    """Return a watched layer, except for joins, which stages recognise by class."""
    layer = named_layer.layer
    return (
        named_layer
        if isinstance(layer, Join)
        else NamedLayer(named_layer.name, _WatchedLayer(named_layer.name, layer, findings))
    )
