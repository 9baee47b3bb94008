"""Train and evaluate in turns: TensorFlow's ``tf.estimator.train_and_evaluate`` with its specs."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ipusim.api import machine
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.estimators.estimator import Estimator
from ipusim.ipu.graph.tensorflow_import import load

tf = load()
_TRAIN: Final = tf.compat.v1.train
_LISTENER: Any = _TRAIN.CheckpointSaverListener
_LOG: Final = tf.compat.v1.logging


class TrainSpec(NamedTuple):
    """Data and limits of training.

    Attributes:
        input_fn: input function, as in an estimator's ``train``.
        max_steps: global step at which training ends.
        hooks: SessionRunHooks.
        saving_listeners: CheckpointSaverListeners.
    """

    input_fn: Any
    max_steps: int | None = None
    hooks: Any = None
    saving_listeners: Any = None


class EvalSpec(NamedTuple):
    """Data and interval of evaluations.

    Attributes:
        input_fn, steps, name, hooks: as in an estimator's ``evaluate``.
        exporters: None or an empty list.
        start_delay_secs: without effect, as in TensorFlow if one process trains and evaluates.
        throttle_secs: least seconds of this computer's clock between evaluations. The first trained checkpoint and
            the last checkpoint are always evaluated.
    """

    input_fn: Any
    steps: int | None = 100
    name: str | None = None
    hooks: Any = None
    exporters: Any = None
    start_delay_secs: float = 120
    throttle_secs: float = 600


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any) -> tuple[dict[str, Any] | None, list[object]]:
    """Train an estimator, and evaluate checkpoints during and after training.

    Returns:
        The metrics of the last evaluation, and an empty list of exports. The metrics are None if nothing was left to
        train. Of several workers, only the chief evaluates and has metrics.

    Raises:
        UnsupportedProgramError: if there are exporters, or if eval_distribute is set on several hosts.
    """
    if eval_spec.exporters:
        raise UnsupportedProgramError(
            "exporters: expected None, because there is no compiled graph to export and checkpoints in model_dir hold "
            f"the variables, got {eval_spec.exporters!r}"
        )
    config = estimator.config
    if config.eval_distribute is not None and machine.host_count() > 1:
        raise UnsupportedProgramError(
            "eval_distribute: expected None in train_and_evaluate on several hosts, because the chief evaluates there "
            "by itself: call the estimator's evaluate on each host instead"
        )
    _LOG.info(
        "Start train and evaluate loop. The evaluate will happen after every checkpoint. Checkpoint frequency is "
        f"determined based on RunConfig arguments: save_checkpoints_steps {config.save_checkpoints_steps} or "
        f"save_checkpoints_secs {config.save_checkpoints_secs}."
    )
    listener = _EvaluationListener(estimator, eval_spec)
    estimator.train(
        train_spec.input_fn,
        hooks=train_spec.hooks,
        max_steps=train_spec.max_steps,
        saving_listeners=[*(train_spec.saving_listeners or ()), listener],
    )
    return listener.metrics, []


class _EvaluationListener(_LISTENER):  # type: ignore[misc]
    """Evaluates saved checkpoints as often as the spec allows, and always the last.

    Attributes:
        metrics: metrics of the last evaluation; None before the first.
    """

    metrics: dict[str, Any] | None = None

    def __init__(self, estimator: Estimator, spec: EvalSpec) -> None:
        self._estimator, self._spec = estimator, spec

    def begin(self) -> None:
        self._timer, self._is_first_save = _TRAIN.SecondOrStepTimer(every_secs=self._spec.throttle_secs), True

    def after_save(self, session: Any, global_step_value: int) -> None:
        if self._is_first_save:  # TensorFlow saves once before training
            self._is_first_save = False
        elif self._timer.should_trigger_for_step(global_step_value):
            self._evaluate(global_step_value)
        else:
            _LOG.info(f"Skip the current checkpoint eval due to throttle secs ({self._spec.throttle_secs} secs).")

    def end(self, session: Any, global_step_value: int) -> None:
        if global_step_value != self._timer.last_triggered_step():
            self._evaluate(global_step_value)

    def _evaluate(self, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        spec = self._spec
        self.metrics = self._estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, name=spec.name)
