"""How long an estimator trains, and which hooks look on, in TensorFlow's order; and what a first training begins with.

With which variables of a checkpoint that is, ``tf.estimator.WarmStartSettings`` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from contextvars import Context
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from ipusim.api import checkpoint
from ipusim.base.errors import ProgramError
from ipusim.ipu.estimators.program import EstimatorProgram
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_run_config import RunConfig
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.checkpoint_files import of_checkpoint, read_checkpoint
from ipusim.ipu.tensorflow.checkpoint_saver_hook import CheckpointSaverHook
from ipusim.ipu.tensorflow.saver import (
    Saver,
    get_checkpoint_state,
    go_on_from,
    latest_checkpoint,
    state_now,
)
from ipusim.ipu.tensorflow.session import Session
from ipusim.ipu.tensorflow.session_run_hooks import (
    CheckpointSaverListener,
    LoggingTensorHook,
    NanTensorHook,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StepCounterHook,
    run_with_hooks,
)
from ipusim.ipu.tensorflow.variables import current_global_step, get_global_step, set_global_step


def check_steps(steps: Any, max_steps: Any, iterations: int) -> None:
    """Refuse steps that are no multiple of ``iterations``, both numbers or neither; raises ProgramError."""
    if steps is not None and max_steps is not None:
        raise ProgramError("Can not provide both steps and max_steps.")
    if steps is None and max_steps is None:
        raise ProgramError("One of `num_steps` or `final_step` must be specified.")
    check_positive("steps", steps)
    check_positive("max_steps", max_steps)
    if steps is not None and steps % iterations:
        raise ProgramError(f"steps ({steps}) must be a multiple of iterations_per_loop ({iterations})")


def check_positive(name: str, steps: Any) -> None:
    """Check a number of steps, which is above 0 or None; raises ProgramError in TensorFlow's words."""
    if steps is not None:
        if checks.integer(name, steps) <= 0:
            raise ProgramError(f"Must specify {name} > 0, given: {steps}")
        checks.whole(name, steps)


def counting(iterations: int) -> Callable[[], None]:
    """Return what makes the global step grow after a run."""
    return lambda: set_global_step(current_global_step() + iterations)


def training_hooks(
    config: RunConfig,
    program: EstimatorProgram,
    own: Sequence[SessionRunHook],
    listeners: Sequence[CheckpointSaverListener],
    is_chief: bool,
) -> list[SessionRunHook]:
    """Return all hooks of a training: those that save and count, the caller's ``own``, and the model function's.

    Of several workers the chief alone saves, counts and logs.

    Raises ProgramError in TensorFlow's words for listeners without anything that saves.
    """
    watching: list[SessionRunHook] = [NanTensorHook(program.loss)]
    if config.log_step_count_steps is not None and is_chief:
        tensors = {"loss": program.loss, "step": get_global_step()}
        watching.append(LoggingTensorHook(tensors, every_n_iter=config.log_step_count_steps))
    workers = [*own, *watching, *program.hooks]
    saving = [hook for hook in (*workers, *program.chief_hooks) if isinstance(hook, CheckpointSaverHook)]
    chief: list[SessionRunHook] = []
    if not saving and (config.save_checkpoints_secs or config.save_checkpoints_steps):
        saving = [_saving(config)]
        chief = [*saving]
    if listeners:
        if not saving:
            raise ProgramError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
                "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        saving[0].listeners.extend(listeners)
    chief += program.chief_hooks
    if config.log_step_count_steps is not None:
        chief.append(StepCounterHook(every_n_steps=config.log_step_count_steps))
    return [*chief, *workers] if is_chief else workers


def _saving(config: RunConfig) -> CheckpointSaverHook:
    assert config.model_dir is not None
    saver = Saver(
        max_to_keep=config.keep_checkpoint_max, keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours
    )
    earlier = get_checkpoint_state(config.model_dir)
    saver.recover_last_checkpoints(earlier.all_model_checkpoint_paths if earlier else ())
    return CheckpointSaverHook(
        config.model_dir,
        save_secs=config.save_checkpoints_secs or None,
        save_steps=config.save_checkpoints_steps or None,
        saver=saver,
    )


def runs(
    fetches: Any,
    hooks: Sequence[SessionRunHook],
    restore: Callable[[Session], object],
    between: Callable[[], object] = lambda: None,
    agreed: Callable[[bool], bool] = bool,
) -> Iterator[Any]:
    """Run ``fetches`` until a hook asks to stop; yield their values after each run.

    Whether to stop is ``agreed`` on with others.

    In TensorFlow's order: hooks begin; ``restore`` gives variables their values; hooks see the session; in each run
    they are asked, what they ask for runs, ``between`` is called, and they look on; in the end they are told, unless
    something has failed or no further run is requested.
    """
    for hook in hooks:
        hook.begin()
    with closing(Session()) as session:
        restore(session)
        for hook in hooks:
            hook.after_create_session(session, None)
        stop = False
        while not stop:
            values, asks_to_stop = run_with_hooks(session, fetches, hooks, between)
            stop = agreed(asks_to_stop)
            yield values
        for hook in hooks:
            hook.end(session)


class StartInfeed(SessionRunHook):
    """Initializes an infeed queue."""

    def __init__(self, infeed: IPUInfeedQueue) -> None:
        """Take the queue."""
        self._infeed = infeed

    def after_create_session(self, session: Any, coord: object) -> None:
        """Initialize it."""
        session.run(self._infeed.initializer)


class StopAfterRuns(SessionRunHook):
    """Stops after so many runs."""

    def __init__(self, count: int) -> None:
        """Take how many."""
        self._left = count

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Count, and ask to stop."""
        self._left -= 1
        if self._left <= 0:
            run_context.request_stop()


def inside(context: Context, iterator: Iterator[Any]) -> Iterator[Any]:
    """Yield what an iterator yields in a context of its own."""
    end = object()
    while (value := context.run(next, iterator, end)) is not end:
        yield value


class WarmStartSettings(NamedTuple):
    """Which variables to take.

    Attributes:
        ckpt_to_initialize_from: a checkpoint, or the folder of some.
        vars_to_warm_start: a regular expression of their names, or a list of names or expressions; None for none.
        var_name_to_vocab_info: must be empty.
        var_name_to_prev_var_name: from a name here to that in the checkpoint.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


def settings_of(value: Any) -> WarmStartSettings | None:
    """Return what to begin with.

    Raises ProgramTypeError for what is no path or settings, ProgramError for vocabularies.
    """
    if value is None:
        return None
    if isinstance(value, str | PathLike):
        return WarmStartSettings(fspath(value))
    checks.instance("warm_start_from", value, WarmStartSettings, "a path, or WarmStartSettings")
    settings: WarmStartSettings = value
    if settings.var_name_to_vocab_info:
        checks.wrong_value("var_name_to_vocab_info", "none, as vocabularies are not simulated", settings[2])
    return settings


def warm_start(settings: WarmStartSettings) -> None:
    """Set the variables of the compiled programs; raises ProgramError for those that the checkpoint has not."""
    source = settings.ckpt_to_initialize_from
    prefix = latest_checkpoint(source) if Path(source).is_dir() else source
    if prefix is None:
        raise ProgramError(f"warm_start_from: expected a checkpoint, or a folder with one, got {source!r}")
    arrays, before = read_checkpoint(prefix), settings.var_name_to_prev_var_name or {}
    names = {
        name
        for name in state_now()
        if checkpoint.is_variable(name)
        and name != "global_step"
        and (name in before or _matches(settings.vars_to_warm_start, name))
    }
    with of_checkpoint(prefix):
        known = {name: before.get(name, name) for name in names}
        values = {name: arrays[there] for name, there in known.items() if there in arrays}
        go_on_from(values, names.__contains__)


def _matches(expressions: str | Sequence[str] | None, name: str) -> bool:
    if expressions is None:
        return False
    listed = [expressions] if isinstance(expressions, str) else expressions
    return any(re.match(expression, name) for expression in listed)
