"""Define the models of ``ipu.keras`` in releases up to 2.0, in place of Keras' models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.keras.placement import models_on_ipus
from ipusim.ipu.runtime import checks

tf = load()
_Sequential: Any = tf.keras.Sequential
_Model: Any = tf.keras.Model


class _EarlyModel:
    """Model that executes a weight update's batches at once, as in releases without ``steps_per_execution``.

    A step of ``fit``, ``evaluate`` and ``predict`` has a weight update's batches.
    """

    _update_batches = 1

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the model with the arguments of Keras' compile."""
        if self._update_batches > 1:
            kwargs.setdefault("steps_per_execution", self._update_batches)
        super().compile(*args, **kwargs)  # type: ignore[misc]

    def fit(self, *args: Any, steps_per_epoch: int | None = None, **kwargs: Any) -> Any:
        """Train with the arguments of Keras' fit."""
        return super().fit(*args, steps_per_epoch=self._batches_of(steps_per_epoch), **kwargs)  # type: ignore[misc]

    def evaluate(self, *args: Any, steps: int | None = None, **kwargs: Any) -> Any:
        """Evaluate with the arguments of Keras' evaluate."""
        return super().evaluate(*args, steps=self._batches_of(steps), **kwargs)  # type: ignore[misc]

    def predict(self, *args: Any, steps: int | None = None, **kwargs: Any) -> Any:
        """Predict with the arguments of Keras' predict."""
        return super().predict(*args, steps=self._batches_of(steps), **kwargs)  # type: ignore[misc]

    def _batches_of(self, steps: int | None) -> int | None:
        return None if steps is None else steps * self._update_batches

    def _accumulate(self: Any, accumulation: int, gradient_accumulation: int | None) -> None:
        """Set the batches per weight update; ``accumulation`` comes from the argument's earlier name."""
        name = "accumulation_count" if gradient_accumulation is None else "gradient_accumulation_count"
        count = checks.whole(name, accumulation if gradient_accumulation is None else gradient_accumulation, 1)
        if count > 1:
            self._update_batches = count
            self.set_gradient_accumulation_options(count)

    def _pipeline(self: Any, count: int, options: dict[str, Any]) -> None:
        """Set the batches per weight update, and the other options of a pipeline."""
        count = options.pop("pipeline_depth", count)
        self._update_batches = checks.whole("gradient_accumulation_count", count, 1)
        self.set_pipelining_options(count, options.pop("device_mapping", None), **options)


class Sequential(_EarlyModel, _Sequential):  # type: ignore[misc]
    """Keras' sequential model with gradient accumulation over ``accumulation_count`` batches."""

    def __init__(
        self,
        layers: list[Any] | None = None,
        accumulation_count: int = 1,
        *,
        gradient_accumulation_count: int | None = None,
        name: str | None = None,
    ) -> None:
        """Set layers, and batches per update under either name; raises ProgramError for less than one batch."""
        with models_on_ipus():
            super().__init__(layers, name)
        self._accumulate(accumulation_count, gradient_accumulation_count)


class Model(_EarlyModel, _Model):  # type: ignore[misc]
    """Keras' model with gradient accumulation over ``accumulation_count`` batches."""

    def __init__(
        self,
        *args: Any,
        accumulation_count: int = 1,
        gradient_accumulation_count: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Set the arguments of Keras' model, and batches per update; raises ProgramError for less than one batch."""
        with models_on_ipus():
            super().__init__(*args, **kwargs)
        self._accumulate(accumulation_count, gradient_accumulation_count)


class SequentialPipelineModel(_EarlyModel, _Sequential):  # type: ignore[misc]
    """Pipeline of lists of layers, one list per stage."""

    def __init__(self, stages: Sequence[Sequence[Any]], gradient_accumulation_count: int = 1, **options: Any) -> None:
        """Set layers by stage, batches per weight update, and other arguments of a pipeline."""
        name = options.pop("name", None)
        with models_on_ipus():
            super().__init__([layer for stage in stages for layer in stage], name)
        self.set_pipeline_stage_assignment([number for number, stage in enumerate(stages) for _ in stage])
        self._pipeline(gradient_accumulation_count, options)


class PipelineModel(_EarlyModel, _Model):  # type: ignore[misc]
    """Pipeline of the calls of layers in the blocks of ``PipelineStage``."""

    def __init__(
        self, inputs: Any, outputs: Any, gradient_accumulation_count: int = 1, name: str | None = None, **options: Any
    ) -> None:
        """Set tensors of a functional model, batches per weight update, and pipeline arguments."""
        with models_on_ipus():
            super().__init__(inputs, outputs, name=name)
        self._pipeline(gradient_accumulation_count, options)


#: Names of SequentialPipelineModel in other releases.
PipelineSequential = PipelinedModel = SequentialPipelineModel
