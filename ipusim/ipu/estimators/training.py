"""Training in a session of TensorFlow: which hooks look on, in its order, and what a first training begins with."""

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
    """With which variables of a checkpoint a first training begins.

    Attributes:
        ckpt_to_initialize_from: a checkpoint, or the folder of some.
        vars_to_warm_start: a regular expression of their names, a list of names or of variables; None for none.
        var_name_to_vocab_info: from a name to its VocabInfo.
        var_name_to_prev_var_name: from a name here to that in the checkpoint.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


def train(
    spec: Any,
    start: str | None,
    own: Sequence[Any],
    listeners: Sequence[Any],
    workers: Workers,
    config: Any,
    steps_per_run: int,
) -> Any:
    """Train on from a checkpoint, in TensorFlow's order of hooks; return the last loss.

    Args:
        spec: spec of the model.
        start: checkpoint; None for initial values.
        own: hooks of the caller.
        listeners: CheckpointSaverListeners of the caller.
        workers: hosts that train together. The first saves, counts and logs.
        config: a RunConfig.
        steps_per_run: steps of a session run.

    Raises:
        ProgramError: in TensorFlow's words, for listeners without a hook that saves.
    """
    loss, scaffold = workers.mean(spec.loss), spec.scaffold or _TRAIN.Scaffold()
    if all(each.op.name != "loss" for each in _V1.get_collection(_V1.GraphKeys.SUMMARIES)):
        _V1.summary.scalar("loss", tf.reshape(loss, []))
    every = [*own, _TRAIN.NanTensorHook(loss)]
    if config.log_step_count_steps is not None and workers.is_chief:
        tensors = {"loss": loss, "step": _TRAIN.get_global_step()}
        every.append(_TRAIN.LoggingTensorHook(tensors, every_n_iter=config.log_step_count_steps))
    every += spec.training_hooks or ()
    of_chief = spec.training_chief_hooks or ()
    saving = [hook for hook in (*every, *of_chief) if isinstance(hook, _TRAIN.CheckpointSaverHook)]
    chief: list[Any] = []
    if not saving and (config.save_checkpoints_secs or config.save_checkpoints_steps):
        saving = [_saving(scaffold, config)]
        chief = [*saving]
    if listeners:
        if not saving:
            raise ProgramError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
                "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        saving[0]._listeners.extend(listeners)
    chief += [*of_chief, *_counting(scaffold, config)]
    hooks = [*(chief if workers.is_chief else ()), *every, *workers.hooks()]
    for hook in hooks:
        if hasattr(hook, "_set_steps_per_run"):
            hook._set_steps_per_run(steps_per_run)
    with _TRAIN.MonitoredSession(creator_of(scaffold, start, config), hooks) as session:
        last = None
        while not session.should_stop():
            _, last = session.run([spec.train_op, loss])
    return last


def _counting(scaffold: Any, config: Any) -> list[Any]:
    """Return the hooks that log steps a second and write summaries."""
    result: list[Any] = []
    if config.log_step_count_steps:
        steps = config.log_step_count_steps
        result.append(_TRAIN.StepCounterHook(every_n_steps=steps, output_dir=config.model_dir))
    if config.save_summary_steps:
        steps = config.save_summary_steps
        result.append(_TRAIN.SummarySaverHook(save_steps=steps, output_dir=config.model_dir, scaffold=scaffold))
    return result


def _saving(scaffold: Any, config: Any) -> Any:
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
    """Return what makes a session with the values of a checkpoint, or initial values."""
    return _TRAIN.ChiefSessionCreator(scaffold, config=config.session_config, checkpoint_filename_with_path=path)


class StopAtStep(_HOOK):  # type: ignore[misc]
    """Stops at a global step that grows by several steps in a run."""

    def __init__(self, count: int | None, last: int | None) -> None:
        """Take a count of steps from now on, or the last step."""
        self._count, self._last = count, last

    def begin(self) -> None:
        """Find the global step."""
        self._step = _TRAIN.get_global_step()

    def after_create_session(self, session: Any, coord: object) -> None:
        """Count from the step of the session."""
        if self._last is None:
            self._last = session.run(self._step) + self._count

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Ask to stop at the last step."""
        if run_context.session.run(self._step) >= self._last:
            run_context.request_stop()


class StopAfterRuns(_HOOK):  # type: ignore[misc]
    """Stops after so many runs."""

    def __init__(self, count: int) -> None:
        """Take the number of runs."""
        self._left = count

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Count, and ask to stop."""
        self._left -= 1
        if self._left <= 0:
            run_context.request_stop()


def settings_of(value: Any) -> WarmStartSettings | None:
    """Return what a first training begins with; raises ProgramTypeError for what is no path or settings."""
    if value is None or isinstance(value, WarmStartSettings):
        return value
    checks.instance("warm_start_from", value, str | PathLike, "a path, or WarmStartSettings")
    return WarmStartSettings(fspath(value))


def warm_start(settings: WarmStartSettings) -> None:
    """Let initial values be those of a checkpoint; raises ProgramError where there is none."""
    source = settings.ckpt_to_initialize_from
    refuse_arrays(source)
    prefix = tf.train.latest_checkpoint(source) if Path(source).is_dir() else source
    if prefix is None or not _TRAIN.checkpoint_exists(prefix):
        raise ProgramError(f"warm_start_from: expected a checkpoint, or a folder with one, got {source!r}")
    _TRAIN.warm_start(*settings)
