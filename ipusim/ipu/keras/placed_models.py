"""Hold options, stages and pipeline arguments of tf_keras models that run on simulated IPUs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ipusim.base.errors import ProgramStateError
from ipusim.ipu import pipelining_ops
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.keras.extensions import FunctionalExtension, ModelExtension, SequentialExtension
from ipusim.ipu.keras.options import Options
from ipusim.ipu.runtime.arguments import Arguments, check_arguments
from ipusim.ipu.runtime.devices import device_ordinal
from ipusim.ipu.runtime.pipeline_options import LoopSchedule
from ipusim.ipu.runtime.program_request import request_options
from ipusim.ipu.runtime.program_state import configured
from ipusim.ipu.traced.keras.stages import ModelCalls, symbolic_calls

tf = load()

#: Functions that a pipelined model cannot override in Graphcore's Keras.
_NOT_OVERRIDDEN: Final = tuple(
    name for kind in ("train", "test", "predict") for name in (f"{kind}_step", f"make_{kind}_function")
)
#: Pipeline arguments that only training uses.
_TRAINING_ARGUMENTS: Final = (
    "gradient_accumulation_dtype",
    "recomputation_mode",
    "backward_propagation_stages_poplar_options",
    "weight_update_poplar_options",
    "offload_weight_update_variables",
    "offload_gradient_accumulation_buffers",
    "replicated_optimizer_state_sharding",
)
#: Pipeline arguments by their names in an accumulating optimizer.
_ARGUMENT_OF_OPTION: Final = {"dtype": "gradient_accumulation_dtype"}


class PlacedModel:
    """Options, stages and placement of a model, a :class:`~ipusim.ipu.traced.keras.execution.Placement`.

    Attributes:
        model: extended model.
        name: name of the model.
        layers: layers of the model.
        model_calls: calls of a subclass of Model; None before the model is built.
    """

    def __init__(self, model: Any) -> None:
        """Set the model."""
        self.model = model
        self.model_calls: ModelCalls | None = None

    @property
    def name(self) -> str:
        """Name of the model."""
        name: str = self.model.name
        return name

    @property
    def layers(self) -> list[Any]:
        """Layers of the model."""
        return list(self.model.layers)

    @property
    def graph(self) -> Any:
        """Calls of the model's layers; None before a subclass of Model is built."""
        return symbolic_calls(self.model, None) if self.model._is_graph_network else self.model_calls

    @property
    def settings(self) -> Options:
        """Options of the model."""
        options: Options = self.options  # type: ignore[attr-defined]
        return options

    @property
    def stage_count(self) -> int:
        """Number of pipeline stages; 1 for a model that is not pipelined."""
        assigned = self.__dict__.get("_assigned") or []
        return 1 + max((assignment.pipeline_stage for assignment in assigned), default=0)

    def prepare_for(self, batch: Any) -> None:
        """Prepare for executions over batches like ``batch``, an array or ``tf.TensorSpec``; a subclass may build."""

    @property
    def replicas(self) -> int:
        """Number of replicas of the model that fit on the configured device."""
        config, options = configured(), self.settings
        mapping = options.device_mapping or range(self.stage_count)
        system = (config or IPUConfig()).system(
            mapping, options.is_pipelined, is_configured=config is not None, ordinal=device_ordinal()
        )
        return system.replicas

    def accumulator_dtype(self, variable: Any) -> np.dtype[Any] | None:
        """Return the dtype of a variable's gradient accumulator by the options; None for the variable's dtype."""
        options = self.settings
        dtype = (
            options.pipelining.get("gradient_accumulation_dtype")
            if options.is_pipelined
            else options.accumulating.get("dtype")
        )
        if callable(dtype) and not isinstance(dtype, type):
            dtype = dtype(variable)
        return None if dtype is None else np.dtype(tf.as_dtype(dtype).as_numpy_dtype)

    def check(self, batch: Any, kind: str, steps: int) -> None:
        """Refuse executions in the words of Graphcore's Keras."""
        model, options = self.model, self.settings
        if model.run_eagerly:
            raise ProgramStateError(
                "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` when calling "
                "`compile`."
            )
        self.prepare_for(batch)
        if options.is_pipelined:
            self._refuse_overridden_functions(model)
        if kind == "train":
            options.check_steps(steps)

    @staticmethod
    def _refuse_overridden_functions(model: Any) -> None:
        """Refuse a model that overrides functions of tf_keras which a pipeline replaces."""
        for name in _NOT_OVERRIDDEN:
            if getattr(type(model), name) is not getattr(tf.keras.Model, name):
                raise ProgramStateError(
                    f"The function `{name}` for the model {model.name} has been overridden. This is not supported: "
                    "write a loop with ipu.loops or a pipeline instead."
                )

    def request(self, stages: int, count: int, repeats: int, *, kind: str) -> Mapping[str, Any]:
        """Return request options for the configured device, by keys of a scenario."""
        config = configured()
        options = request_options(
            self._arguments(stages, count, repeats, kind),
            IPUConfig() if config is None else config,
            is_configured=config is not None,
            ordinal=None,
        )
        if "prefetch_depth" in self.settings.infeed:
            options["infeed"] = {"prefetch_depth": self.settings.infeed["prefetch_depth"]}
        return options

    def _arguments(self, stages: int, count: int, repeats: int, kind: str) -> Arguments:
        """Return the arguments of the pipeline or loop that runs the model."""
        options, training = self.settings, kind == "train"
        arguments = {
            name: parameter.default for name, parameter in inspect.signature(pipelining_ops.pipeline).parameters.items()
        }
        arguments |= {
            "computational_stages": [_no_function] * stages,
            "gradient_accumulation_count": count,
            "repeat_count": repeats,
            "outfeed_queue": IPUOutfeedQueue(**options.outfeed),
            "optimizer_function": _no_function if training else None,
            "reduction_method": options.reduction_method,
        }
        if not options.is_pipelined:
            return _loop(
                arguments
                | {
                    _ARGUMENT_OF_OPTION.get(name, name): item
                    for name, item in _with_numpy_dtypes(options.accumulating).items()
                }
            )
        # inference ignores the model's arguments for training
        training_defaults = {} if training else {name: arguments[name] for name in _TRAINING_ARGUMENTS}
        arguments |= {
            "device_mapping": options.device_mapping,
            "accumulate_outfeed": options.sums_results and kind != "predict",
        }
        return check_arguments({**arguments, **_with_numpy_dtypes(options.pipelining), **training_defaults})


class PlacedSequential(PlacedModel, SequentialExtension):
    """Options and stages of a Sequential model."""


class PlacedFunctional(PlacedModel, FunctionalExtension):
    """Options and stages of a functional model."""


class PlacedSubclass(PlacedModel, ModelExtension):
    """Options and stages of a subclass of Model, with calls known after its build."""

    def build(self, element: Any) -> None:
        """Record the model's layer calls symbolically, and assign each call to the stage of its scope."""
        if self.model_calls is None:
            self.model_calls = symbolic_calls(self.model, element)
            self._take_scopes()

    def prepare_for(self, batch: Any) -> None:
        """Build a pipelined model if the batch's shapes are known."""
        options = self.options
        if options.pipelining or options.device_mapping or options.pipelining_steps:
            x, _, _ = tf.keras.utils.unpack_x_y_sample_weight(batch)
            forms = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), x)
            if all(form.shape[1:].is_fully_defined() for form in tf.nest.flatten(forms)):
                self.build(forms)


def _with_numpy_dtypes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with NumPy dtypes in place of TensorFlow's."""
    return {name: option.as_numpy_dtype if isinstance(option, tf.DType) else option for name, option in options.items()}


def _loop(arguments: Mapping[str, Any]) -> Arguments:
    """Return a loop's arguments: those of a two-stage pipeline, the smallest pipeline, cut to one stage."""
    two = check_arguments({**arguments, "computational_stages": [_no_function] * 2})
    return replace(
        two,
        stages=two.stages[:1],
        mapping=two.mapping[:1],
        schedule=LoopSchedule.Single,
        forward_options=two.forward_options[:1],
        backward_options=two.backward_options[:1],
    )


def _no_function(*_: Any) -> None:
    """Stand for a stage's function, which TensorFlow has already traced."""
