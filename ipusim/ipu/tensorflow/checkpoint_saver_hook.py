"""The hook of TensorFlow 1 that saves checkpoints while a program runs."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow import session_run_hooks as hooks
from ipusim.ipu.tensorflow.saver import Saver
from ipusim.ipu.tensorflow.session import get_logger
from ipusim.ipu.tensorflow.variables import current_global_step


class CheckpointSaverHook(hooks.SessionRunHook):
    """Saves a checkpoint at the beginning, every so many steps or seconds, and at the end.

    Args:
        checkpoint_dir: the folder, which is made where there is none.
        save_secs, save_steps: how often; exactly one.
        saver: what saves, by default a Saver.
        checkpoint_basename: what the names of checkpoints begin with.
        scaffold: must be None.
        listeners: CheckpointSaverListeners, told before and after.
        save_graph_def: without effect.

    Raises ProgramError in TensorFlow's words for how often.
    """

    def __init__(
        self,
        checkpoint_dir: str | PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Saver | None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: object = None,
        listeners: Any = None,
        save_graph_def: bool = True,
    ) -> None:
        """Check the arguments."""
        if scaffold is not None:
            checks.wrong_type("scaffold", "None, as a Saver says what is saved", scaffold)
        if save_secs is None and save_steps is None:
            raise ProgramError("Either save_secs or save_steps should be provided.")
        if save_secs is not None and save_steps is not None:
            raise ProgramError("Can not provide both save_secs and save_steps.")
        self._folder = checks.path("checkpoint_dir", checkpoint_dir)
        if saver is not None and not isinstance(saver, Saver):
            checks.wrong_type("saver", "a tf.train.Saver", saver)
        self._prefix = str(Path(self._folder) / checks.text("checkpoint_basename", checkpoint_basename))
        self._saver = saver
        self._timer = hooks.SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self.listeners: list[hooks.CheckpointSaverListener] = hooks.checked_listeners(listeners)

    def begin(self) -> None:
        """Let listeners prepare."""
        for listener in self.listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: object) -> None:
        """Save what the session begins with."""
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        if self._saver is None:
            self._saver = Saver()
        self._save(session, current_global_step())
        self._timer.update_last_triggered_step(current_global_step())

    def after_run(self, run_context: hooks.SessionRunContext, run_values: hooks.SessionRunValues) -> None:
        """Save, where it is due."""
        step = current_global_step()
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Any) -> None:
        """Save what the session ends with."""
        step = current_global_step()
        if step != self._timer.last_triggered_step():
            self._save(session, step)
        for listener in self.listeners:
            listener.end(session, step)

    def _save(self, session: Any, step: int) -> bool:
        """Save a checkpoint; return whether a listener asks to stop."""
        assert self._saver is not None
        get_logger().info(f"Saving checkpoints for {step} into {self._prefix}.")
        for listener in self.listeners:
            listener.before_save(session, step)
        self._saver.save(session, self._prefix, global_step=step)
        stops = [listener.after_save(session, step) for listener in self.listeners]
        return any(stops)
