"""What a model function says of its model: TensorFlow 1's modes and ``EstimatorSpec``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple


class ModeKeys:
    """What a model function is called for."""

    TRAIN: ClassVar[str] = "train"
    EVAL: ClassVar[str] = "eval"
    PREDICT: ClassVar[str] = "infer"


class EstimatorSpec(NamedTuple):
    """What a model function returns.

    Attributes:
        mode: a ModeKeys.
        predictions: a tensor, or a dictionary of tensors; for PREDICT.
        loss: a tensor of one number; for TRAIN and EVAL.
        train_op: an operation that trains; for TRAIN.
        eval_metric_ops: pairs of a value and its update, by name; for EVAL.
        export_outputs: without effect, as nothing is exported.
        training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks.
        scaffold: a ``tf.train.Scaffold``, with which the session is made.
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
