"""Define the result of a model function: TensorFlow 1's modes and ``EstimatorSpec``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple


class ModeKeys:
    """Mode of a model function's call."""

    TRAIN: ClassVar[str] = "train"
    EVAL: ClassVar[str] = "eval"
    PREDICT: ClassVar[str] = "infer"


class EstimatorSpec(NamedTuple):
    """Result of a model function.

    Attributes:
        mode: a ModeKeys.
        predictions: a tensor, or a dictionary of tensors; for PREDICT.
        loss: a tensor of one number; for TRAIN and EVAL.
        train_op: training operation; for TRAIN.
        eval_metric_ops: pairs of value and update by name; for EVAL.
        export_outputs: without effect: estimators export nothing.
        training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks.
        scaffold: a ``tf.train.Scaffold`` for the session.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, tuple[Any, Any]] | None = None
    export_outputs: Any = None
    training_chief_hooks: Any = None
    training_hooks: Any = None
    scaffold: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None
