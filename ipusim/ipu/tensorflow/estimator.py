"""``tf.estimator``: what model functions, hooks, configurations and trainings of estimators are written with."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import found_in, offering

_HERE: Final = "ipusim.ipu.tensorflow"

__getattr__, __dir__ = offering(
    "tf.estimator",
    found_in(f"{_HERE}.estimator_spec", "EstimatorSpec ModeKeys")
    | found_in(f"{_HERE}.run_config", "RunConfig")
    | found_in(
        f"{_HERE}.session_run_hook",
        "CheckpointSaverListener SessionRunArgs SessionRunContext SessionRunHook SessionRunValues",
    )
    | found_in(
        f"{_HERE}.basic_session_run_hooks",
        "LoggingTensorHook NanLossDuringTrainingError NanTensorHook SecondOrStepTimer StepCounterHook StopAtStepHook",
    )
    | found_in(f"{_HERE}.checkpoint_saver_hook", "CheckpointSaverHook")
    | found_in("ipusim.ipu.estimators.warm_start", "WarmStartSettings")
    | found_in(f"{_HERE}.training", "EvalSpec TrainSpec train_and_evaluate"),
)
