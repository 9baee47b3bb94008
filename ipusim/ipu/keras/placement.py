"""Place tf_keras models on simulated IPUs, if created in a strategy's scope."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.keras import batches, saving
from ipusim.ipu.keras.pipeline_stages import pipeline_stage
from ipusim.ipu.keras.placed_models import PlacedFunctional, PlacedModel, PlacedSequential, PlacedSubclass
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.traced.keras import execution

tf = load()

#: Class of functional models in tf_keras.
_FUNCTIONAL: Final = import_module("tf_keras.src.engine.functional").Functional
_BASE: Final = import_module("tf_keras.src.engine.base_layer_utils")
_SHAPES: Final = import_module("tf_keras.src.utils.tf_utils")

#: Methods added to models by Graphcore's Keras.
METHODS: Final = (
    "export_for_ipu_serving",
    "get_pipeline_stage_assignment",
    "print_pipeline_stage_assignment_summary",
    "reset_pipeline_stage_assignment",
    "set_asynchronous_callbacks",
    "set_gradient_accumulation_options",
    "set_infeed_queue_options",
    "set_outfeed_queue_options",
    "set_pipeline_stage_assignment",
    "set_pipelining_options",
)
_INSTALLED: Final[list[bool]] = []
#: Whether newly created models run on simulated IPUs.
_RUNS_NEW_MODELS: Final = Scoped("in_strategy", False)


def extension_of(model: Any) -> PlacedModel:
    """Return a model's options and stages.

    Raises:
        ProgramStateError: if the model was created outside of a strategy's scope.
    """
    placement = _placed(model)
    if placement is None:
        raise ProgramStateError(
            f"model {model.name!r}: expected one that was made in the scope of an IPUStrategy, where models run on IPUs"
        )
    return placement


def models_on_ipus() -> AbstractContextManager[bool]:
    """Run models created in the block on simulated IPUs."""
    install()
    return _RUNS_NEW_MODELS.set_to(True)


def install() -> None:
    """Patch tf_keras: models created in a strategy's scope run on simulated IPUs and have Graphcore's methods."""
    if _INSTALLED:
        return
    _INSTALLED.append(True)
    execution.install()
    for name in METHODS:
        setattr(tf.keras.Model, name, _method(name))
    _call_after(tf.keras.layers.Layer, _note_scope)
    _call_after(import_module("tf_keras.src.engine.node").Node, _note_call)
    _call_after(tf.keras.Model, _place)
    _call_after(_FUNCTIONAL, _take_scopes)
    tf.keras.Model.build = _recording_calls(tf.keras.Model.build)
    batches.install(_replicas_of)
    saving.install(_placed)


def _placed(model: Any) -> PlacedModel | None:
    """Return a model's options and stages; None for a model on the host."""
    placement = execution.placement_of(model)
    return placement if isinstance(placement, PlacedModel) else None


def _replicas_of(model: Any, batch: Any) -> int | None:
    """Return a model's number of replicas for batches of a form; None for a model on the host."""
    placement = None if model is None else _placed(model)
    if placement is None:
        return None
    placement.prepare_for(batch)
    return placement.replicas


def _method(name: str) -> Callable[..., Any]:
    """Return a method for models that calls the method of their extension."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(extension_of(self), name)(*args, **kwargs)

    method.__name__ = name
    return method


def _call_after(kind: Any, callback: Callable[[Any], object]) -> None:
    """Call a function after construction of every object of a class."""
    original = kind.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        callback(self)

    kind.__init__ = init


def _recording_calls(original: Callable[..., None]) -> Callable[..., None]:
    """Return ``Model.build`` that also records the layer calls of a placed subclass of Model.

    A model built by its first call records none: that call has no symbolic inputs.
    """

    @wraps(original)
    def build(self: Any, input_shape: Any) -> None:
        original(self, input_shape)
        placement = execution.placement_of(self)
        if not isinstance(placement, PlacedSubclass) or _BASE.call_context().in_call:
            return
        shapes = _SHAPES.convert_shapes(input_shape, to_tuples=False)
        dtype = tf.keras.backend.floatx()
        try:
            placement.build(tf.nest.map_structure(lambda shape: tf.TensorSpec(shape, dtype), shapes))
        except ProgramError:
            raise
        except Exception as error:  # the program's own; only stages need the calls
            placement.untraceable = str(error)

    return build


def _note_scope(layer: Any) -> None:
    """Record the stage of the scope around a layer's creation."""
    layer.__dict__["_pipeline_stage"] = pipeline_stage()


def _note_call(node: Any) -> None:
    """Record a call's stage: the stage of the surrounding scope, else the layer's stage."""
    stage = pipeline_stage()
    node.pipeline_stage = node.layer.__dict__.get("_pipeline_stage") if stage is None else stage
    node.index = len(node.layer.inbound_nodes) - 1
    node.inputs = [SimpleNamespace(node=None if parent.is_input else parent) for parent in node.parent_nodes]


def _place(model: Any) -> None:
    """Place a model on simulated IPUs if it is created in a strategy's scope."""
    if not _RUNS_NEW_MODELS() or execution.placement_of(model) is not None:
        return
    if isinstance(model, tf.keras.Sequential):
        kind: Any = PlacedSequential
    else:
        kind = PlacedFunctional if isinstance(model, _FUNCTIONAL) else PlacedSubclass
    execution.place(model, kind(model))


def _take_scopes(model: Any) -> None:
    """Assign the calls of a functional model to the stages of surrounding scopes."""
    placement = execution.placement_of(model)
    if isinstance(placement, PlacedFunctional):
        placement._take_scopes()
