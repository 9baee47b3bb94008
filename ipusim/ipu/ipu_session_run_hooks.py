"""Hooks in Graphcore's names: what logs values from inside a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.devices import check_deprecated
from ipusim.ipu.runtime.host import Operation
from ipusim.ipu.runtime.loop_body import body_record
from ipusim.ipu.runtime.optimizer import is_tensor
from ipusim.ipu.runtime.queues import IPUOutfeedMode
from ipusim.ipu.tensorflow.session_run_hooks import (
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    log_values,
    timer_of,
)


class IPULoggingTensorHook(SessionRunHook):
    """Logs values from inside a program, every so many runs or seconds, or at the end.

    Args:
        every_n_iter, every_n_secs: how often; exactly one, unless ``at_end``.
        at_end: whether at the end.
        formatter: from a dictionary of the values to a text.
        logging_mode: whether all values since the last time are logged, or the last ones alone.
        feed_name, replication_factor: without effect, as Graphcore's, which calls them deprecated.

    Raises ProgramError in Graphcore's words for how often, ProgramTypeError for what is no mode.
    """

    LoggingMode = IPUOutfeedMode

    def __init__(
        self,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        logging_mode: IPUOutfeedMode = IPUOutfeedMode.LAST,
        feed_name: str | None = None,
        replication_factor: int | None = None,
    ) -> None:
        """Check the arguments."""
        at_end = checks.truth("at_end", at_end)
        if every_n_iter is not None and every_n_secs is not None:
            raise ProgramError("Cannot provide both every_n_iter and every_n_secs")
        if every_n_iter is None and every_n_secs is None and not at_end:
            raise ProgramError("Either every_n_iter, every_n_secs or at_end should be provided")
        checks.instance("logging_mode", logging_mode, IPUOutfeedMode, "an IPUOutfeedMode")
        checks.function("formatter", formatter, "a function of a dictionary", optional=True)
        check_deprecated(feed_name, replication_factor)
        self._timer = timer_of(every_n_iter, every_n_secs, at_end)
        self._at_end, self._formatter, self._mode = at_end, formatter, logging_mode
        self._outfeed = IPUOutfeedQueue(logging_mode)
        self._collected = False
        self._waiting: list[Mapping[str, Any]] = []
        self._runs = 0

    def log(self, tensors: Any) -> Operation:
        """Log tensors: one, a list, or a dictionary of them; called in the body of a loop.

        Raises ProgramStateError the second time in a body, ProgramTypeError for what is no tensor.
        """
        here, record = logged(), body_record()
        if (here is not None and self in here.tensors) or (record is not None and record.queue is self._outfeed):
            raise ProgramStateError(
                "Cannot use this hook object's log function more than once. Either enqueue all tensors in a single "
                "log call using a list or dict, or create another hook."
            )
        named = _named(tensors)
        if here is None:
            return self._outfeed.enqueue(named)
        here.tensors[self] = named
        self._collected = True
        return Operation("log")

    def take(self, values: Mapping[str, Any]) -> None:
        """Take the results of a run of an estimator."""
        self._waiting = [values] if self._mode is IPUOutfeedMode.LAST else [*self._waiting, values]

    def begin(self) -> None:
        """Begin to count; raises ProgramStateError where nothing is logged."""
        if not (self._outfeed.enqueued or self._collected):
            raise ProgramStateError(
                "This logging hook's outfeed was not enqueued. Did you forget to call the log function?"
            )
        self._runs = 0
        self._timer.reset()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log, where it is due."""
        if self._timer.should_trigger_for_step(self._runs):
            self._log(run_context.session)
        self._runs += 1

    def end(self, session: Any) -> None:
        """Log the last values."""
        if self._at_end:
            self._log(session)
        self._timer.reset()

    def _log(self, session: Any) -> None:
        seconds, _ = self._timer.update_last_triggered_step(self._runs)
        log_values(self._values(session), seconds, self._formatter)

    def _values(self, session: Any) -> dict[str, Any]:
        """Return the values since the last time: of all mini-batches, or of the last."""
        if not self._collected:
            return dict(session.run(self._outfeed.dequeue()))
        if self._mode is IPUOutfeedMode.LAST:
            return {name: item[-1] for name, item in self._waiting[-1].items()}
        waiting, self._waiting = self._waiting, []
        return {name: np.concatenate([item[name] for item in waiting]) for name in (waiting[0] if waiting else ())}


def _named(tensors: Any) -> dict[str, Any]:
    """Return tensors by name; those of a list by their place."""
    if isinstance(tensors, dict):
        return tensors
    listed = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
    for item in listed:
        if not is_tensor(item):
            raise ProgramTypeError(f"Expected `tf.Tensor`, got {type(item)}")
    return {f"tensor_{index}": item for index, item in enumerate(listed)}


@dataclass
class Logged:
    """The values that one run of a body logs.

    Attributes:
        tensors: of each hook, by name, in the order in which they log.
    """

    tensors: dict[IPULoggingTensorHook, dict[str, Any]] = field(default_factory=dict)

    def sent(self) -> dict[str, Any]:
        """Return all tensors by names of their own."""
        return {
            f"{_name(number)}{name}": item
            for number, stored in enumerate(self.tensors.values())
            for name, item in stored.items()
        }

    def hand_out(self, results: Mapping[str, Any]) -> Mapping[str, Any]:
        """Hand each hook what a run has sent for it, and return all."""
        for number, hook in enumerate(self.tensors):
            start = _name(number)
            hook.take({name.removeprefix(start): result for name, result in results.items() if name.startswith(start)})
        return results


#: What collects the tensors that hooks log in the estimator's body that is running; None where none is.
logged: Final[Scoped[Logged | None]] = Scoped("logged", None)


def _name(number: int) -> str:
    return f"hook {number}/"
