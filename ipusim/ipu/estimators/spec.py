"""What a model function says of its model: TensorFlow 1's modes and ``EstimatorSpec``."""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()
_HOOK: Final = tf.compat.v1.train.SessionRunHook


class ModeKeys:
    """What a model function is called for."""

    TRAIN: ClassVar[str] = "train"
    EVAL: ClassVar[str] = "eval"
    PREDICT: ClassVar[str] = "infer"


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, tuple[Any, Any]]
    export_outputs: Any
    training_chief_hooks: tuple[Any, ...]
    training_hooks: tuple[Any, ...]
    scaffold: Any
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class EstimatorSpec(_Fields):
    """What a model function returns."""

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: dict[str, tuple[Any, Any]] | None = None,
        export_outputs: Any = None,
        training_chief_hooks: Any = None,
        training_hooks: Any = None,
        scaffold: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> EstimatorSpec:
        """Check the arguments.

        Args:
            mode: a ModeKeys.
            predictions: a tensor, or a dictionary of tensors; for PREDICT.
            loss: a tensor of one number; for TRAIN and EVAL.
            train_op: an operation that trains; for TRAIN.
            eval_metric_ops: pairs of a value and its update, by name; for EVAL.
            export_outputs: without effect, as nothing is exported.
            training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks.
            scaffold: a ``tf.train.Scaffold``, with which the session is made.

        Raises:
            ProgramError: in TensorFlow's words, for what the mode needs and is not there.
            ProgramTypeError: in TensorFlow's words, for arguments of other types.
        """
        return super().__new__(
            cls,
            mode,
            *checked_results(mode, predictions, loss, train_op),
            checked_metrics(eval_metric_ops),
            export_outputs,
            checked_hooks(training_chief_hooks),
            checked_hooks(training_hooks),
            tf.compat.v1.train.Scaffold() if scaffold is None else scaffold,
            checked_hooks(evaluation_hooks),
            checked_hooks(prediction_hooks),
        )


def checked_results(mode: Any, predictions: Any, loss: Any, train_op: Any) -> tuple[Any, Any, Any]:
    """Return predictions, loss and train_op.

    Raises:
        ProgramError: for those that the mode needs and are not there.
        ProgramTypeError: for what they may not be.
    """
    check_mode(mode)
    if train_op is None and mode == ModeKeys.TRAIN:
        raise ProgramError("Missing train_op.")
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ProgramError("Missing loss.")
    elif not tf.is_tensor(loss):
        raise ProgramTypeError(f"loss must be Tensor, given: {loss!r}")
    elif loss.shape.num_elements() not in (None, 1):
        raise ProgramError(f"Loss must be scalar, given: {loss}")
    elif loss.shape.rank:
        loss = tf.reshape(loss, [])
    if train_op is not None and not (isinstance(train_op, tf.Operation) or tf.is_tensor(train_op)):
        raise ProgramTypeError(f"train_op must be Operation or Tensor, given: {train_op!r}")
    for name, prediction in (predictions if isinstance(predictions, dict) else {"": predictions}).items():
        if predictions is not None and not tf.is_tensor(prediction):
            raise ProgramTypeError(f"predictions{f'[{name}]' if name else ''} must be Tensor, given: {prediction!r}")
    if predictions is None and mode == ModeKeys.PREDICT:
        raise ProgramError("Missing predictions.")
    return predictions, loss, train_op


def check_mode(mode: Any) -> None:
    """Refuse what is no mode; raises ProgramError."""
    if not isinstance(mode, str) or mode not in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT):
        checks.wrong_value("mode", "a tf.estimator.ModeKeys", mode)


def checked_metrics(metrics: Any) -> dict[str, tuple[Any, Any]]:
    """Return pairs of a value and its update by name; raises ProgramTypeError for anything else."""
    if metrics is None:
        return {}
    if not isinstance(metrics, dict):
        raise ProgramTypeError(f"eval_metric_ops must be a dict, given: {metrics!r}")
    for name, pair in metrics.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ProgramTypeError(
                f"Values of eval_metric_ops must be (metric_value, update_op) tuples, given: {pair!r} for key: {name}"
            )
    return dict(metrics)


def checked_hooks(hooks: Any) -> tuple[Any, ...]:
    """Return hooks; raises ProgramTypeError in TensorFlow's words for what is none."""
    if hooks is not None and not isinstance(hooks, list | tuple):
        raise ProgramTypeError(f"All hooks must be SessionRunHook instances, given: {hooks!r}")
    for hook in hooks or ():
        if not isinstance(hook, _HOOK):
            raise ProgramTypeError(f"All hooks must be SessionRunHook instances, given: {hook!r}")
    return tuple(hooks or ())
