"""TensorFlow 1's session hooks: ``SessionRunHook``, and the arguments and values of its methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host import Fetch
from ipusim.ipu.tensorflow.session import get_logger
from ipusim.ipu.tensorflow.variables import current_global_step


class SessionRunArgs(NamedTuple):
    """The further fetches of a hook, and values to feed; the options have no effect."""

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: object = None


class SessionRunValues(NamedTuple):
    """The values that a hook requested of a run, which it gets after it."""

    results: Any
    options: object = None
    run_metadata: object = None


class SessionRunContext:
    """One run, as hooks see it.

    Attributes:
        original_args: what runs without any hook.
        session: that runs it.
        stop_requested: whether no further run is to follow.
    """

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        """Take what runs, and in which session."""
        self.original_args, self.session = original_args, session
        self.stop_requested = False

    def request_stop(self) -> None:
        """Ask for no further run."""
        self.stop_requested = True


class SessionRunHook:
    """Base of all hooks; each method does nothing."""

    def begin(self) -> None:
        """Prepare, before there is a session."""

    def after_create_session(self, session: Any, coord: object) -> None:
        """Look on when the session is there, and its variables have their values."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Return further fetches of the run, or None."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Look on after a run."""

    def end(self, session: Any) -> None:
        """Look on when no further run follows; not called when one has failed."""


class CheckpointSaverListener:
    """Base of listeners to checkpoints; each method does nothing."""

    def begin(self) -> None:
        """Prepare, before there is a session."""

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Look on before a checkpoint is written."""

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        """Look on when it is; True asks for no further run."""

    def end(self, session: Any, global_step_value: int) -> None:
        """Look on when no further checkpoint follows."""


def checked_hooks(name: str, hooks: Any) -> list[SessionRunHook]:
    """Return hooks as a list; raises ProgramTypeError in TensorFlow's words for what is none."""
    if hooks is None:
        return []
    checks.instance(name, hooks, list | tuple, "a list of hooks")
    for hook in hooks:
        checks.instance(name, hook, SessionRunHook, "Hooks must be a SessionRunHook, given")
    return list(hooks)


def checked_listeners(listeners: Any) -> list[CheckpointSaverListener]:
    """Return listeners as a list; raises ProgramTypeError for what is none."""
    if listeners is None:
        return []
    if not isinstance(listeners, list | tuple) or not all(isinstance(x, CheckpointSaverListener) for x in listeners):
        checks.wrong_type("saving_listeners", "a list of CheckpointSaverListener", listeners)
    return list(listeners)


def run_with_hooks(
    session: Any, fetches: Any, hooks: Sequence[SessionRunHook], between: Callable[[], object]
) -> tuple[Any, bool]:
    """Run ``fetches`` once with all that hooks ask for; return its values, and whether to stop.

    ``between`` is called after the run, before hooks look on. As in TensorFlow every hook is asked before the run, in
    their order, and looks on after it, in the same order.
    """
    arguments = SessionRunArgs(fetches)
    context = SessionRunContext(arguments, session)
    requests = [(hook, hook.before_run(context)) for hook in hooks]
    feeds: dict[Any, Any] = {}
    for _, item in requests:
        if item is not None and not isinstance(item, SessionRunArgs):
            checks.wrong_type("before_run", "SessionRunArgs from a hook, or None", item)
        feeds.update((item and item.feed_dict) or {})
    beside = [item.fetches for _, item in requests if item is not None and item.fetches is not None]
    own, *result = session.run([arguments.fetches, *beside], feed_dict=feeds)
    between()
    for hook, item in requests:
        has = item is not None and item.fetches is not None
        hook.after_run(context, SessionRunValues(result.pop(0) if has else None))
    return own, context.stop_requested


class SecondOrStepTimer:
    """A timer that triggers every so many steps, or every so many seconds of this computer's clock.

    Raises ProgramError in TensorFlow's words for both, or for neither.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        """Check the arguments; the first time is always due."""
        if every_secs is None and every_steps is None:
            raise ProgramError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ProgramError("Can not provide both every_secs and every_steps.")
        self._secs = None if every_secs is None else checks.not_negative("every_secs", every_secs)
        self._steps = None if every_steps is None else checks.whole("every_steps", every_steps, 1)
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Tell whether it is due."""
        if self._last_step is None:
            return True
        if self._last_step == step:
            return False
        if self._secs is not None:
            return time.time() >= self._last_time + self._secs
        assert self._steps is not None
        return step >= self._last_step + self._steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that it was done; return the seconds and steps since the time before, None the first time."""
        now, before, at = time.time(), self._last_step, self._last_time
        self._last_step, self._last_time = step, now
        return (None, None) if before is None else (now - at, step - before)

    def last_triggered_step(self) -> int | None:
        """Return when it was last done."""
        return self._last_step


class NeverTriggerTimer(SecondOrStepTimer):
    """A timer for what is never due."""

    def __init__(self) -> None:
        """Begin."""
        super().__init__(every_steps=1)

    def should_trigger_for_step(self, step: int) -> bool:
        """Return False."""
        return False

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Return no time."""
        return None, None


def timer_of(every_n_iter: Any, every_n_secs: Any, at_end: bool) -> SecondOrStepTimer:
    """Return the timer of a hook that logs."""
    if every_n_iter is None and every_n_secs is None and at_end:
        return NeverTriggerTimer()
    return SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_iter)


class LoggingTensorHook(SessionRunHook):
    """Logs values of a session every so many runs or seconds, or at the end.

    Args:
        tensors: what a session evaluates, by name or in a list.
        every_n_iter, every_n_secs: how often; exactly one, unless ``at_end``.
        at_end: whether at the end.
        formatter: from a dictionary of the values to a text.

    Raises ProgramError in TensorFlow's words for how often.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Sequence[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        """Check the arguments."""
        at_end = checks.truth("at_end", at_end)
        if (every_n_iter is None) == (every_n_secs is None) and not (at_end and every_n_iter is None):
            raise ProgramError("either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and checks.integer("every_n_iter", every_n_iter) <= 0:
            raise ProgramError(f"invalid every_n_iter={every_n_iter}.")
        if formatter is not None and not callable(formatter):
            checks.wrong_type("formatter", "a function of a dictionary", formatter)
        if not isinstance(tensors, Mapping):
            checks.instance("tensors", tensors, list | tuple, "what a session evaluates, by name or in a list")
            tensors = {str(getattr(tensor, "name", tensor)): tensor for tensor in tensors}
        self._tensors = dict(tensors)
        self._at_end, self._formatter = at_end, formatter
        self._timer = timer_of(every_n_iter, every_n_secs, at_end)
        self._runs, self._due = 0, False

    def begin(self) -> None:
        """Begin to count."""
        self._timer.reset()
        self._runs = 0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Ask for the values, where they are due."""
        self._due = self._timer.should_trigger_for_step(self._runs)
        return SessionRunArgs(self._tensors) if self._due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log them."""
        if self._due:
            self._log(run_values.results)
        self._runs += 1

    def end(self, session: Any) -> None:
        """Log the last values."""
        if self._at_end:
            self._log(session.run(self._tensors))

    def _log(self, values: dict[str, Any]) -> None:
        seconds, _ = self._timer.update_last_triggered_step(self._runs)
        log_values(values, seconds, self._formatter)


def log_values(
    values: dict[str, Any], seconds: float | None, formatter: Callable[[dict[str, Any]], str] | None = None
) -> None:
    """Log values as TensorFlow's hooks do."""
    if formatter is not None:
        get_logger().info(formatter(values))
        return
    with np.printoptions(suppress=True):
        text = ", ".join(f"{name} = {value}" for name, value in values.items())
    get_logger().info(text if seconds is None else f"{text} ({seconds:.3f} sec)")


class StopAtStepHook(SessionRunHook):
    """Stops after ``num_steps``, or at the global step ``last_step``; raises ProgramError for both or neither."""

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        """Check the arguments."""
        if num_steps is None and last_step is None:
            raise ProgramError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ProgramError("Only one of num_steps or last_step can be specified.")
        self._steps = None if num_steps is None else checks.whole("num_steps", num_steps)
        self._last = None if last_step is None else checks.whole("last_step", last_step)

    def after_create_session(self, session: Any, coord: object) -> None:
        """Count from where the session begins."""
        if self._last is None:
            assert self._steps is not None
            self._last = current_global_step() + self._steps

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Ask to stop, when it is time."""
        if self._last is not None and current_global_step() >= self._last:
            run_context.request_stop()


class StepCounterHook(SessionRunHook):
    """Logs how many steps a second of this computer's clock are made, every so many steps or seconds."""

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: object = None,
    ) -> None:
        """Check the arguments; the last two are without effect. Raises ProgramError for how often."""
        if (every_n_steps is None) == (every_n_secs is None):
            raise ProgramError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_steps)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log, where it is due."""
        step = current_global_step()
        if self._timer.should_trigger_for_step(step):
            seconds, steps = self._timer.update_last_triggered_step(step)
            if seconds and steps:
                get_logger().info(f"global_step/sec: {steps / seconds:g}")


class NanLossDuringTrainingError(ProgramStateError):
    """A loss that is no number."""


class NanTensorHook(SessionRunHook):
    """Watches ``loss_tensor``, which a session evaluates; stops, or raises NanLossDuringTrainingError, at no number."""

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        """Take what to watch; raises ProgramTypeError for what no session evaluates."""
        checks.instance("loss_tensor", loss_tensor, Fetch, "what a session evaluates")
        self._loss, self._fails = loss_tensor, checks.truth("fail_on_nan_loss", fail_on_nan_loss)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Ask for the loss."""
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Look at it."""
        if not np.isnan(run_values.results).any():
            return
        text = "Model diverged with loss = NaN."
        if self._fails:
            get_logger().error(text)
            raise NanLossDuringTrainingError("NaN loss during training.")
        get_logger().warning(text)
        run_context.request_stop()
