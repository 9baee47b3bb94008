"""Save options and pipeline stages in model files, and restore them in a strategy's scope."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final
from zipfile import ZipFile, is_zipfile

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod

tf = load()
#: Key of all options in a model's configuration.
_KEY: Final = "ipu"
#: Key of the reduction method among the options.
_METHOD_KEY: Final = "gradient_accumulation_reduction_method"
#: Attribute of every other saved option, by key.
_SAVED: Final = {
    "gradient_accumulation_steps_per_replica": "accumulation_steps",
    "pipelining_gradient_accumulation_steps_per_replica": "pipelining_steps",
    "pipelining_device_mapping": "device_mapping",
    "pipelining_accumulate_outfeed": "accumulate_outfeed",
    "asynchronous_callbacks": "asynchronous",
}
#: Unsaved attributes of options, with the method that sets each.
_UNSAVED: Final = {
    "pipelining": "set_pipelining_options",
    "accumulating": "set_gradient_accumulation_options",
    "infeed": "set_infeed_queue_options",
    "outfeed": "set_outfeed_queue_options",
}


def install(extension_of: Callable[[Any], Any]) -> None:
    """Save options in model files, and restore them.

    Args:
        extension_of: function that returns options and stages of a model; None for a model on the host.
    """
    for kind in (import_module("tf_keras.src.engine.functional").Functional, tf.keras.Sequential):
        kind.get_config = _saving_options(kind.get_config, extension_of)
        kind.from_config = classmethod(_restoring_options(kind.from_config.__func__, extension_of))
    api: Any = import_module("tf_keras.src.saving.saving_api")
    api.SupportReadFromRemote = _reader_without_arrays(api.SupportReadFromRemote)
    loader = import_module("tf_keras.src.saving.legacy.saved_model.load").KerasObjectLoader
    rebuild = loader._reconstruct_model

    @wraps(rebuild)
    def reconstruct(self: Any, model_id: Any, model: Any, layers: Any) -> None:
        rebuild(self, model_id, model, layers)
        values = import_module("tf_keras.src.saving.legacy.saved_model.json_utils").decode(
            self._metadata[model_id].metadata
        )
        _set_options(extension_of(model), values["config"])

    loader._reconstruct_model = reconstruct
    _keep_state_of_legacy_optimizers()


def _keep_state_of_legacy_optimizers() -> None:
    """Save the state of legacy optimizers in Keras' own file format, as tf_keras leaves this state out."""
    legacy_class: Any = tf.keras.optimizers.legacy.Optimizer
    current_class: Any = tf.keras.optimizers.Optimizer
    library: Any = import_module("tf_keras.src.saving.saving_lib")
    compile_from, has_state = tf.keras.Model.compile_from_config, library._is_keras_trackable

    def on_variables(method: Callable[..., None]) -> Callable[[Any, Any], None]:
        return lambda self, store: method(SimpleNamespace(name=self._name, variables=self.weights), store)

    @wraps(compile_from)
    def compile_from_config(self: Any, config: Any) -> None:
        compile_from(self, config)
        if isinstance(getattr(self, "optimizer", None), legacy_class) and self.built:
            self.optimizer._create_all_weights(self.trainable_variables)

    legacy_class.save_own_variables = on_variables(current_class.save_own_variables)
    legacy_class.load_own_variables = on_variables(current_class.load_own_variables)
    library._is_keras_trackable = lambda item: has_state(item) or isinstance(item, legacy_class)
    tf.keras.Model.compile_from_config = compile_from_config


def _reader_without_arrays(kind: Any) -> Any:
    """Return a reader class that refuses array files of earlier ipusim releases."""

    class Reader(kind):  # type: ignore[misc]
        def __enter__(self) -> Any:
            path = super().__enter__()
            if is_zipfile(path):
                with ZipFile(path) as file:
                    if all(name.endswith(".npy") for name in file.namelist()):
                        raise ProgramError(
                            f"{path}: expected a file that TensorFlow's Keras has saved, got one of plain arrays, as "
                            "ipusim wrote before TensorFlow ran programs: train the model again, and save it"
                        )
            return path

    return Reader


def _saving_options(original: Callable[[Any], Any], extension_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``get_config`` extended by a model's options."""

    @wraps(original)
    def get_config(self: Any) -> dict[str, Any]:
        extension = extension_of(self)
        config: dict[str, Any] = original(self)
        if extension is None or not extension.options.version:
            return config
        _report_unsaved(extension)
        return {**config, _KEY: _options_of(extension)}

    return get_config


def _restoring_options(original: Callable[..., Any], extension_of: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return ``from_config`` extended by a model's options."""

    @wraps(original)
    def from_config(cls: Any, config: Any, custom_objects: Any = None) -> Any:
        model = original(cls, config, custom_objects)
        _set_options(extension_of(model), config)
        return model

    return from_config


def _options_of(extension: Any) -> dict[str, Any]:
    """Return the options of a model for its configuration."""
    options = extension.options
    assigned = None
    if options.is_pipelined:
        assigned = list(options.stage_of(extension.graph.nodes if extension.graph else extension.layers))
    values = {name: getattr(options, attribute) for name, attribute in _SAVED.items()}
    return {"pipeline_stage_assignment": assigned, **values, _METHOD_KEY: options.reduction_method.name.lower()}


def _set_options(extension: Any, config: Any) -> None:
    """Restore saved options of a model; raises ProgramError for stages of another model."""
    if extension is None or not isinstance(config, Mapping) or _KEY not in config:
        return
    values = config[_KEY]
    extension.options.change(
        reduction_method=GradientAccumulationReductionMethod.parse(values[_METHOD_KEY]),
        **{attribute: values[name] for name, attribute in _SAVED.items()},
    )
    if values["pipeline_stage_assignment"] is not None:
        extension.assign_stages(values["pipeline_stage_assignment"])


def _report_unsaved(extension: Any) -> None:
    """Report a model's unsaved options on standard error, once per change of options."""
    options = extension.options
    if extension.__dict__.get("_said") == options.version:
        return
    extension.__dict__["_said"] = options.version
    for name, method in _UNSAVED.items():
        if value := getattr(options, name):
            print(
                f"Model {extension.name}: {', '.join(value)} of {method} is not saved, as in Graphcore's Keras: call "
                f"{method} again on the loaded model",
                file=sys.stderr,
            )
