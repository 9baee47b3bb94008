"""What looks on while a program runs again and again: TensorFlow 1's ``SessionRunHook``, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ipusim.ipu import checks


class SessionRunArgs(NamedTuple):
    """What a hook asks for beside what runs: fetches, and values to feed; the options are without effect."""

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: object = None


class SessionRunValues(NamedTuple):
    """What a hook gets after a run: the values of what it has asked for."""

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
        """Say what else to run, or None."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Look on after a run."""

    def end(self, session: Any) -> None:
        """Look on when no further run follows; not called when one has failed."""


class CheckpointSaverListener:
    """Base of what is told of checkpoints; each method does nothing."""

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
    if not isinstance(hooks, list | tuple):
        checks.wrong_type(name, "a list of hooks", hooks)
    for hook in hooks:
        if not isinstance(hook, SessionRunHook):
            checks.wrong_type(name, "Hooks must be a SessionRunHook, given", hook)
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
    asked = SessionRunArgs(fetches)
    context = SessionRunContext(asked, session)
    wanted = [(hook, hook.before_run(context)) for hook in hooks]
    feeds: dict[Any, Any] = {}
    for _, each in wanted:
        if each is not None and not isinstance(each, SessionRunArgs):
            checks.wrong_type("before_run", "SessionRunArgs from a hook, or None", each)
        feeds.update((each and each.feed_dict) or {})
    beside = [each.fetches for _, each in wanted if each is not None and each.fetches is not None]
    own, *found = session.run([asked.fetches, *beside], feed_dict=feeds)
    between()
    for hook, each in wanted:
        has = each is not None and each.fetches is not None
        hook.after_run(context, SessionRunValues(found.pop(0) if has else None))
    return own, context.stop_requested
