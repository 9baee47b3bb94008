"""``tf.estimator``, removed from TensorFlow: estimators built from sessions, savers and hooks.

| module | content |
| --- | --- |
| ``spec`` | result of a model function, with checks |
| ``run_config`` | options of an estimator's run |
| ``calls`` | arguments of model and input functions |
| ``estimator`` | training, evaluation and predictions |
| ``on_ipus`` | estimators whose model function runs on IPUs |
| ``training``, ``predictions`` | training and predictions in sessions |
| ``train_and_evaluate`` | training and evaluation in turns |
| ``workers`` | hosts that run an estimator together |
"""

from ipusim.ipu.estimators.estimator import Estimator
from ipusim.ipu.estimators.run_config import RunConfig
from ipusim.ipu.estimators.spec import EstimatorSpec, ModeKeys
from ipusim.ipu.estimators.train_and_evaluate import EvalSpec, TrainSpec, train_and_evaluate
from ipusim.ipu.estimators.training import WarmStartSettings
from ipusim.ipu.runtime.offered import in_module, rows

#: Key of the loss among an evaluation's metrics.
LOSS_METRIC_KEY = "loss"

__all__ = [
    "LOSS_METRIC_KEY",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "ModeKeys",
    "RunConfig",
    "TrainSpec",
    "WarmStartSettings",
    "train_and_evaluate",
]

__getattr__, __dir__ = rows(
    __name__,
    in_module(
        "tensorflow.compat.v1.train",
        "CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook LoggingTensorHook "
        "NanLossDuringTrainingError NanTensorHook ProfilerHook SecondOrStepTimer SessionRunArgs SessionRunContext "
        "SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook VocabInfo",
    ),
)
