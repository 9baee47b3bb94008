"""Train in a TensorFlow session: hooks in TensorFlow's order, and warm starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, NamedTuple

from ipusim.base.errors import ProgramError
from ipusim.ipu.estimators.workers import Workers
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.savers import refuse_arrays

tf = load()
_V1: Final = tf.compat.v1
_TRAIN: Final = _V1.train
_HOOK: Any = _TRAIN.SessionRunHook


class WarmStartSettings(NamedTuple):
    """Variables that a first training takes from a checkpoint.

    Attributes:
        ckpt_to_initialize_from: a checkpoint, or a folder of checkpoints.
        vars_to_warm_start: a regular expression of variable names, a list of names, or a list of variables. None
            takes no variable.
        var_name_to_vocab_info: VocabInfo by variable name.
        var_name_to_prev_var_name: name in the checkpoint by variable name.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


def train(
    spec: Any,
    start: str | None,
    caller_hooks: Sequence[Any],
    listeners: Sequence[Any],
    workers: Workers,
    config: Any,
    steps_per_run: int,
) -> Any:
    """Train from a checkpoint with TensorFlow's order of hooks; return the last loss.

    Args:
        spec: spec of the model.
        start: checkpoint; None for initial values.
        caller_hooks: caller's hooks.
        listeners: caller's CheckpointSaverListeners.
        workers: hosts that train together; only the first saves, counts and logs.
        config: a RunConfig.
        steps_per_run: steps per session run.

    Raises:
        ProgramError: if there are listeners but no hook that saves checkpoints (TensorFlow's message).
    """
    loss, scaffold = workers.mean(spec.loss), spec.scaffold or _TRAIN.Scaffold()
    if all(summary.op.name != "loss" for summary in _V1.get_collection(_V1.GraphKeys.SUMMARIES)):
        _V1.summary.scalar("loss", tf.reshape(loss, []))
    all_hooks = [*caller_hooks, _TRAIN.NanTensorHook(loss)]
    if config.log_step_count_steps is not None and workers.is_chief:
        tensors = {"loss": loss, "step": _TRAIN.get_global_step()}
        all_hooks.append(_TRAIN.LoggingTensorHook(tensors, every_n_iter=config.log_step_count_steps))
    all_hooks += spec.training_hooks or ()
    chief_hooks_of_spec = spec.training_chief_hooks or ()
    saving_hooks = [hook for hook in (*all_hooks, *chief_hooks_of_spec) if isinstance(hook, _TRAIN.CheckpointSaverHook)]
    chief_hooks: list[Any] = []
    if not saving_hooks and (config.save_checkpoints_secs or config.save_checkpoints_steps):
        saving_hooks = [_saving_hook(scaffold, config)]
        chief_hooks = [*saving_hooks]
    if listeners:
        if not saving_hooks:
            raise ProgramError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
                "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        saving_hooks[0]._listeners.extend(listeners)
    chief_hooks += [*chief_hooks_of_spec, *_counting_hooks(scaffold, config)]
    hooks = [*(chief_hooks if workers.is_chief else ()), *all_hooks, *workers.hooks()]
    for hook in hooks:
        if hasattr(hook, "_set_steps_per_run"):
            hook._set_steps_per_run(steps_per_run)
    with _TRAIN.MonitoredSession(creator_of(scaffold, start, config), hooks) as session:
        last = None
        while not session.should_stop():
            _, last = session.run([spec.train_op, loss])
    return last


def _counting_hooks(scaffold: Any, config: Any) -> list[Any]:
    """Return the hooks for steps a second and summaries."""
    result: list[Any] = []
    if config.log_step_count_steps:
        steps = config.log_step_count_steps
        result.append(_TRAIN.StepCounterHook(every_n_steps=steps, output_dir=config.model_dir))
    if config.save_summary_steps:
        steps = config.save_summary_steps
        result.append(_TRAIN.SummarySaverHook(save_steps=steps, output_dir=config.model_dir, scaffold=scaffold))
    return result


def _saving_hook(scaffold: Any, config: Any) -> Any:
    """Return the hook that saves checkpoints."""
    if scaffold.saver is None and not _V1.get_collection(_V1.GraphKeys.SAVERS):
        saver = _TRAIN.Saver(
            sharded=True,
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            defer_build=True,
            save_relative_paths=True,
        )
        _V1.add_to_collection(_V1.GraphKeys.SAVERS, saver)
    seconds, steps = config.save_checkpoints_secs or None, config.save_checkpoints_steps or None
    return _TRAIN.CheckpointSaverHook(config.model_dir, seconds, steps, scaffold=scaffold)


def creator_of(scaffold: Any, path: str | None, config: Any) -> Any:
    """Return a session creator that restores a checkpoint, or initialises variables."""
    return _TRAIN.ChiefSessionCreator(scaffold, config=config.session_config, checkpoint_filename_with_path=path)


class StopAtStep(_HOOK):  # type: ignore[misc]
    """Stops at a global step, which may grow by several steps a run."""

    def __init__(self, count: int | None, last: int | None) -> None:
        """Set a number of steps from now on, or the last step."""
        self._count, self._last = count, last

    def begin(self) -> None:
        """Read the global step's variable from the graph."""
        self._step = _TRAIN.get_global_step()

    def after_create_session(self, session: Any, coord: object) -> None:
        """Start counting at the session's global step."""
        if self._last is None:
            self._last = session.run(self._step) + self._count

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Request a stop at the last step."""
        if run_context.session.run(self._step) >= self._last:
            run_context.request_stop()


class StopAfterRuns(_HOOK):  # type: ignore[misc]
    """Stops after a number of runs."""

    def __init__(self, count: int) -> None:
        """Set the number of runs."""
        self._runs_left = count

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Count a run, and request a stop after the last."""
        self._runs_left -= 1
        if self._runs_left <= 0:
            run_context.request_stop()


def settings_of(value: Any) -> WarmStartSettings | None:
    """Return the settings of a warm start; None if ``value`` is None.

    Raises ProgramTypeError if ``value`` is neither a path nor settings.
    """
    if value is None or isinstance(value, WarmStartSettings):
        return value
    checks.instance("warm_start_from", value, str | PathLike, "a path, or WarmStartSettings")
    return WarmStartSettings(fspath(value))


def warm_start(settings: WarmStartSettings) -> None:
    """Initialise variables from a checkpoint; raises ProgramError if the checkpoint does not exist."""
    source = settings.ckpt_to_initialize_from
    refuse_arrays(source)
    prefix = tf.train.latest_checkpoint(source) if Path(source).is_dir() else source
    if prefix is None or not _TRAIN.checkpoint_exists(prefix):
        raise ProgramError(f"warm_start_from: expected a checkpoint, or a folder with one, got {source!r}")
    _TRAIN.warm_start(*settings)
