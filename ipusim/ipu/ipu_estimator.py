"""An estimator whose model function is the body of a loop, in Graphcore's names."""

from __future__ import annotations

from os import PathLike
from typing import Any, NamedTuple

from ipusim.errors import ProgramError, ProgramTypeError
from ipusim.ipu.estimators.calls import check_model_fn
from ipusim.ipu.estimators.estimator import Estimator
from ipusim.ipu.estimators.loop import loop_program
from ipusim.ipu.estimators.program import EstimatorProgram
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_run_config import RunConfig
from ipusim.ipu.tensorflow.estimator_spec import EstimatorSpec, ModeKeys, checked_metrics, checked_results, spec_hooks
from ipusim.ipu.tensorflow.session_run_hook import SessionRunHook


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, tuple[Any, Any]]
    eval_metrics: tuple[Any, Any] | None
    host_call: tuple[Any, list[Any]] | None
    training_hooks: tuple[SessionRunHook, ...]
    evaluation_hooks: tuple[SessionRunHook, ...]
    prediction_hooks: tuple[SessionRunHook, ...]


class IPUEstimatorSpec(_Fields):
    """What the model function of an IPUEstimator returns.

    Arguments:
        mode: a ModeKeys.
        predictions: an array, or a dictionary of arrays; for PREDICT.
        loss: a number; for TRAIN and EVAL.
        train_op: what minimize returns, also in a group; for TRAIN.
        eval_metric_ops: pairs of a value and its update, by name, computed on the IPU; for EVAL.
        eval_metrics: a function and the tensors that it is given on the host, a list or a dictionary; it returns such
            pairs. For EVAL, in the place of eval_metric_ops.
        host_call: a function and a list of tensors that it is given on the host, after each run of one mini-batch.
        training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks.

    Raises ProgramError and ProgramTypeError in Graphcore's words.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: dict[str, tuple[Any, Any]] | None = None,
        eval_metrics: tuple[Any, Any] | None = None,
        host_call: tuple[Any, list[Any]] | None = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> IPUEstimatorSpec:
        """Check the arguments."""
        _check_call("host_call", host_call, (list,))
        _check_call("eval_metrics", eval_metrics, (list, dict))
        return super().__new__(
            cls,
            mode,
            *checked_results(mode, predictions, loss, train_op),
            checked_metrics(eval_metric_ops),
            eval_metrics,
            host_call,
            spec_hooks(training_hooks),
            spec_hooks(evaluation_hooks),
            spec_hooks(prediction_hooks),
        )


def _check_call(name: str, given: Any, kinds: tuple[type, ...]) -> None:
    if given is None:
        return
    if not isinstance(given, tuple):
        raise ProgramTypeError(f"`{name}` must be a tuple")
    if len(given) != 2:
        raise ProgramError(f"`{name}` must have two elements")
    if not callable(given[0]):
        raise ProgramTypeError(f"first element in `{name}` must be callable")
    if not isinstance(given[1], kinds):
        raise ProgramTypeError(f"second element in `{name}` must be a {' or '.join(each.__name__ for each in kinds)}")


class IPUEstimator(Estimator):
    """Trains, evaluates and predicts with a model function that runs in a loop on an IPU, or on the shards of it.

    Arguments:
        model_fn: a function of features, and of labels, mode, params and config where it takes them, to an
            IPUEstimatorSpec or EstimatorSpec. It runs for each mini-batch.
        model_dir: folder of the checkpoints; by default that of the config, else a temporary one.
        config: a RunConfig of ipu_run_config.
        params: a dictionary that model and input functions get.
        warm_start_from: a checkpoint, its folder, or WarmStartSettings, whose variables a first training begins with.
        train_batch_size, eval_batch_size, predict_batch_size: over all replicas of all workers; a replica's part is
            params["batch_size"].

    Raises ProgramError and ProgramTypeError in Graphcore's words.
    """

    def __init__(
        self,
        model_fn: Any,
        model_dir: str | PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
    ) -> None:
        """Check the arguments."""
        check_model_fn(model_fn, params)
        sizes = {
            ModeKeys.TRAIN: ("train_batch_size", train_batch_size),
            ModeKeys.EVAL: ("eval_batch_size", eval_batch_size),
            ModeKeys.PREDICT: ("predict_batch_size", predict_batch_size),
        }
        super().__init__(model_fn, model_dir, config, params, warm_start_from, sizes)

    def _program(self, mode: str, infeed: IPUInfeedQueue) -> EstimatorProgram:
        run = self.config.ipu_run_config
        return loop_program(self._model, mode, infeed, run.iterations_per_loop, run.num_replicas)

    def _model(self, features: Any, labels: Any, mode: str) -> Any:
        """Call the model function; raises ProgramError in Graphcore's words for labels that it does not take."""
        if labels is not None and "labels" not in self._arguments:
            raise ProgramError("model_fn does not take labels, but input_fn returns labels.")
        found = self.model_fn(features, labels, mode, self.config)
        if not isinstance(found, IPUEstimatorSpec | EstimatorSpec):
            raise ProgramError("`model_fn` must return IPUEstimatorSpec or EstimatorSpec")
        return found
