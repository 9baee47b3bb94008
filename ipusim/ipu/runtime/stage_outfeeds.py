"""Outfeed queues that a stage sends to by itself, in the middle of its forward pass, such as to inspect activations.

Each element is a copy to the host in the middle of the pass, priced as what ``outside_compilation_scope`` sends there.
What an optimizer's apply_gradients sends is copied in no time, as all that it computes beside its rule.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

import numpy as np

from ipusim.api import Array, functions
from ipusim.base.errors import ProgramError, ProgramStateError, UnsupportedProgramError
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.variable import plain

#: The outfeeds of the stage that is running; None where none is.
current: Final[Scoped[StageOutfeeds | None]] = Scoped("stage_outfeeds", None)


@dataclass(eq=False)
class StageOutfeed:
    """One queue of a stage.

    Attributes:
        queue: the IPUOutfeedQueue.
        structure: of an element, without its values.
        forms: shape and dtype of each array of an element.
    """

    queue: Any
    structure: Any
    forms: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]

    def packing(self, arrays: Sequence[Any]) -> Any:
        """Return an element's arrays in its structure."""
        rest = iter(arrays)
        return mapped(lambda _: next(rest), self.structure)


class StageOutfeeds:
    """The queues that one stage sends to.

    Attributes:
        queues: those that it has sent to when it was tried, in their order.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.queues: list[StageOutfeed] = []
        self._called: list[Any] = []
        self._running = False
        self._sent: set[Any] = set()
        self._waiting: dict[tuple[int, int], deque[tuple[Array, ...]]] = {}
        self._replicas = 1

    def begin(self, replicas: int) -> None:
        """Begin a run in which so many replicas send."""
        self._replicas = replicas
        self._sent.clear()
        self._waiting.clear()

    def calling(self, running: bool) -> AbstractContextManager[Any]:
        """Let the function that the block calls enqueue elements; without ``running`` it is only tried."""
        self._called, self._running = [], running
        return current.set_to(self)

    def sends_to(self, queue: object) -> bool:
        """Tell whether the call that is running has sent an element to a queue."""
        return any(item is queue for item in self._called)

    def enqueue(self, queue: Any, tensors: Any) -> None:
        """Send an element; raises ProgramError for the second one of a call."""
        if self.sends_to(queue):
            raise ProgramError("An outfeed can only be enqueued once.")
        index = len(self._called)
        self._called.append(queue)
        values = [np.float32(item) if isinstance(item, float) else item for item in map(plain, leaves(tensors))]
        if index == len(self.queues):
            self.queues.append(StageOutfeed(queue, mapped(lambda _: None, tensors), ()))
        self._send(index, values)

    def _send(self, index: int, values: Sequence[Any]) -> None:
        """Copy the arrays of an element to the host."""
        key = functions.draw_key(f"outfeed {index}") if self._running else None
        from ipusim.ipu.runtime.operations import send  # noqa: PLC0415 - autograd takes a while to import

        with functions.on_host("outfeed"):
            send(lambda arrays: self._receive(index, key, arrays), *values)

    def _receive(self, index: int, key: Any, arrays: tuple[Array, ...]) -> None:
        """Take the arrays of an element; those of a pass that is run again, to recompute, are there already."""
        outfeed = self.queues[index]
        if not self._running:
            outfeed.forms = outfeed.forms or [(array.shape, array.dtype) for array in arrays]
            return
        number = functions.surroundings().replica.index
        if key is not None:
            if (number, key) in self._sent:
                return
            self._sent.add((number, key))
        self._waiting.setdefault((index, number), deque()).append(arrays)
        waiting = [self._waiting.get((index, item)) for item in range(self._replicas)]
        if all(waiting):
            elements = [item.popleft() for item in waiting if item]
            one = self._replicas == 1
            outfeed.queue.receive(elements[0] if one else tuple(map(np.stack, zip(*elements, strict=True))))


class UpdateOutfeeds(StageOutfeeds):
    """The queues that an optimizer's apply_gradients sends to, in each weight update."""

    def begin(self, replicas: int) -> None:
        """Begin a run; raises UnsupportedProgramError where several replicas would send."""
        if self.queues and replicas > 1:
            raise UnsupportedProgramError(
                f"enqueue: expected one replica where apply_gradients sends to an outfeed queue, got {replicas}"
            )
        super().begin(replicas)

    def _send(self, index: int, values: Sequence[Any]) -> None:
        self._receive(index, None, tuple(np.array(value) for value in values))


Element = tuple[Array, ...]

#: How long a reader waits where nothing new has come. A loop that asked again at once would take turns with the run,
#: which is in the same process; an element that comes ends the wait.
_MOMENT_SECONDS: Final = 0.05


class Arrivals:
    """The elements of one queue, in the order in which they came, each taken once."""

    def __init__(self, last_only: bool = False) -> None:
        """Begin with nothing; with ``last_only`` an element is kept until the next one comes."""
        self._last_only = last_only
        self._changed = threading.Condition()
        self._elements: list[Element] = []
        self._came = self._new = 0
        #: The thread that sends, or is expected to.
        self._runner = threading.main_thread()
        self._running = 0
        self._failure = ""
        self._readers: WeakSet[threading.Thread] = WeakSet()

    def __len__(self) -> int:
        """The elements that wait."""
        return len(self._elements)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Enter a block in which a program that enqueues to these queues is built or run."""
        with self._changed:
            self._runner, self._failure = threading.current_thread(), ""
            self._running += 1
        try:
            yield
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def put(self, element: Element) -> None:
        """Take an element that is with the host."""
        with self._changed:
            if self._last_only:
                self._elements.clear()
            self._elements.append(element)
            self._came += 1
            self._new += 1
            self._changed.notify_all()

    def take(self, completed: bool = False) -> list[Element]:
        """Return all elements that have come since the last call.

        In another thread than that of the run it waits a moment where nothing has come, and where the run must be
        ``completed`` until it is. Raises ProgramStateError there when nothing more comes: after a run that has
        failed, and when all threads but those that read have ended.
        """
        with self._changed:
            self._wait(completed)
            result, self._elements = self._elements, []
        return result

    def last(self, completed: bool = False) -> Element | None:
        """Return the last element that has come, None where none has; waits and raises as :meth:`take` does."""
        with self._changed:
            self._wait(completed)
            return self._elements[-1] if self._elements else None

    def _wait(self, completed: bool) -> None:
        """Wait as a reader does, whose element is then there or not."""
        here = threading.current_thread()
        if here is not self._runner:
            self._readers.add(here)
            if completed:
                self._changed.wait_for(lambda: not self._running)
            elif self._running or self._runner.is_alive():
                self._changed.wait_for(lambda: self._new or self._failure, _MOMENT_SECONDS)
            if not self._new and not self._running:
                self._refuse_to_wait_for_ever()
        self._new = 0

    def _refuse_to_wait_for_ever(self) -> None:
        after = f"after {self._came} element{'' if self._came == 1 else 's'}"
        if self._failure:
            raise ProgramStateError(f"the program that sends to this outfeed queue has failed {after}: {self._failure}")
        main = threading.main_thread()
        if not main.is_alive() and not {*threading.enumerate()} - {main, *self._readers}:
            raise ProgramStateError(
                f"nothing more comes to this outfeed queue {after}: all threads but those that read have ended"
            )
