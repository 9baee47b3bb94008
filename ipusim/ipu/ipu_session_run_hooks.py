"""Log values from inside a program: Graphcore's session hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import check_deprecated
from ipusim.ipu.runtime.queues import IPUOutfeedMode

tf = load()
_HOOK: Any = tf.compat.v1.train.LoggingTensorHook


class IPULoggingTensorHook(_HOOK):  # type: ignore[misc]
    """Logs values from inside a program, at intervals or at the end."""

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
        """Check the arguments.

        Args:
            every_n_iter, every_n_secs: interval in runs or in seconds; exactly one, unless ``at_end``.
            at_end: whether to log at the end.
            formatter: function from a dictionary of values to a text.
            logging_mode: whether to log all values since the last log, or only the latest values.
            feed_name, replication_factor: without effect, as in Graphcore's hook, where they are deprecated.

        Raises:
            ProgramError: if the interval is not valid (Graphcore's message).
            ProgramTypeError: if logging_mode has a wrong type.
        """
        at_end = checks.truth("at_end", at_end)
        if every_n_iter is not None and every_n_secs is not None:
            raise ProgramError("Cannot provide both every_n_iter and every_n_secs")
        if every_n_iter is None and every_n_secs is None and not at_end:
            raise ProgramError("Either every_n_iter, every_n_secs or at_end should be provided")
        if every_n_iter is not None:
            checks.whole("every_n_iter", every_n_iter, 1)
        if every_n_secs is not None:
            checks.not_negative("every_n_secs", every_n_secs)
        checks.instance("logging_mode", logging_mode, IPUOutfeedMode, "an IPUOutfeedMode")
        checks.function("formatter", formatter, "a function of a dictionary", optional=True)
        check_deprecated(feed_name, replication_factor)
        super().__init__([], every_n_iter, every_n_secs, at_end, formatter)
        self._outfeed = IPUOutfeedQueue(outfeed_mode=logging_mode)

    def log(self, tensors: Any) -> Any:
        """Log a tensor, list, or dictionary of tensors from a loop's body.

        Returns:
            The operation.

        Raises:
            ProgramStateError: if log is called a second time.
            ProgramTypeError: if the object, or an item of a list or dictionary, is not a tensor.
        """
        if self._outfeed.enqueued:
            raise ProgramStateError(
                "Cannot use this hook object's log function more than once. Either enqueue all tensors in a single "
                "log call using a list or dict, or create another hook."
            )
        tensor_of = _by_name(tensors)
        self._tag_order = list(tensor_of)
        return self._outfeed.enqueue(tensor_of)

    def begin(self) -> None:
        """Add the operation that dequeues the values; raises ProgramStateError if nothing is logged."""
        if not self._outfeed.enqueued:
            raise ProgramStateError(
                "This logging hook's outfeed was not enqueued. Did you forget to call the log function?"
            )
        super().begin()
        self._current_tensors: dict[str, Any] = {}
        self._dequeued = self._outfeed.dequeue()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Log the values if the interval is over."""
        if self._should_trigger:
            self._log_tensors(run_context.session.run(self._dequeued))
        self._iter_count += 1

    def end(self, session: Any) -> None:
        """Log the last values if requested."""
        if self._log_at_end:
            self._log_tensors(session.run(self._dequeued))


def _by_name(tensors: Any) -> dict[str, Any]:
    """Return tensors by name; tensors of a list have their names in the graph."""
    if isinstance(tensors, dict):
        return tensors
    items = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
    for item in items:
        if not tf.is_tensor(item):
            raise ProgramTypeError(f"Expected `tf.Tensor`, got {type(item)}")
    return {item.name: item for item in items}
