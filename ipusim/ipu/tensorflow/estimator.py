"""``tf.estimator``: what model functions, hooks, configurations and trainings of estimators are written with."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import offering

_HERE: Final = "ipusim.ipu.tensorflow"


def _of(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names.split()}


__getattr__, __dir__ = offering(
    "tf.estimator",
    _of(f"{_HERE}.estimator_spec", "EstimatorSpec ModeKeys")
    | _of(f"{_HERE}.run_config", "RunConfig")
    | _of(
        f"{_HERE}.session_run_hook",
        "CheckpointSaverListener SessionRunArgs SessionRunContext SessionRunHook SessionRunValues",
    )
    | _of(
        f"{_HERE}.basic_session_run_hooks",
        "LoggingTensorHook NanLossDuringTrainingError NanTensorHook SecondOrStepTimer StepCounterHook StopAtStepHook",
    )
    | _of(f"{_HERE}.checkpoint_saver_hook", "CheckpointSaverHook")
    | _of("ipusim.ipu.estimators.warm_start", "WarmStartSettings")
    | _of(f"{_HERE}.training", "EvalSpec TrainSpec train_and_evaluate"),
)
