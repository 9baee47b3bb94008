"""The thread that takes results off the outfeed while the device runs, for callbacks of every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import Event, Thread
from typing import Any, Final

from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue

#: Seconds between two looks at a queue in which nothing was.
_PAUSE_S: Final = 0.001


class Polling:
    """Tells of each element that comes, in a thread of its own, until all have come or it is cancelled."""

    def __init__(self, queue: IPUOutfeedQueue, elements: int, told: Callable[[int, Sequence[Any]], object]) -> None:
        """Begin; ``told`` is called with the number of an element and its arrays."""
        self._queue, self._elements, self._told = queue, elements, told
        self._cancelled = Event()
        self._error: BaseException | None = None
        context = copy_context()
        self._thread = Thread(target=lambda: context.run(self._poll), daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        number = 0
        try:
            while number < self._elements:
                found = list(self._queue)
                for element in found:
                    self._told(number, element if isinstance(element, list) else [element])
                    number += 1
                if not found:
                    if self._cancelled.is_set():
                        return
                    time.sleep(_PAUSE_S)
        except BaseException as error:  # whatever a callback raises is raised where fit was called
            self._error = error

    def finish(self) -> None:
        """Wait until all have been told of; raises what a callback has raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """End when nothing is left to be told of, and wait for that."""
        self._cancelled.set()
        self._thread.join()
