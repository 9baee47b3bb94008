"""What has come from the device and waits to be dequeued, between the thread of a run and those that read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet

from ipusim.errors import ProgramStateError
from ipusim.model.layers.layer import Array

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
        """Let a program that sends here be built, or run, in the block."""
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
            found, self._elements = self._elements, []
        return found

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
