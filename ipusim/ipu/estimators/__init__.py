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
from ipusim.ipu.graph.tensorflow_import import load

_TRAIN = load().compat.v1.train

#: Key of the loss among an evaluation's metrics.
LOSS_METRIC_KEY = "loss"

CheckpointSaverHook = _TRAIN.CheckpointSaverHook
CheckpointSaverListener = _TRAIN.CheckpointSaverListener
FeedFnHook = _TRAIN.FeedFnHook
FinalOpsHook = _TRAIN.FinalOpsHook
GlobalStepWaiterHook = _TRAIN.GlobalStepWaiterHook
LoggingTensorHook = _TRAIN.LoggingTensorHook
NanLossDuringTrainingError = _TRAIN.NanLossDuringTrainingError
NanTensorHook = _TRAIN.NanTensorHook
ProfilerHook = _TRAIN.ProfilerHook
SecondOrStepTimer = _TRAIN.SecondOrStepTimer
SessionRunArgs = _TRAIN.SessionRunArgs
SessionRunContext = _TRAIN.SessionRunContext
SessionRunHook = _TRAIN.SessionRunHook
SessionRunValues = _TRAIN.SessionRunValues
StepCounterHook = _TRAIN.StepCounterHook
StopAtStepHook = _TRAIN.StopAtStepHook
SummarySaverHook = _TRAIN.SummarySaverHook
VocabInfo = _TRAIN.VocabInfo

__all__ = [
    "LOSS_METRIC_KEY",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "ModeKeys",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "RunConfig",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "train_and_evaluate",
]
