"""How long a search may go on: until a moment of the clock, for so many cuts, or until a person stops it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ipusim.base.errors import IpusimError, OptionError

#: Of the time of a whole suggestion, the part that is left for what comes after the search, and its most in seconds.
_AFTERWARDS: Final = 0.1
_MOST_AFTERWARDS_S: Final = 5.0


class SearchEndedError(IpusimError):
    """A search whose budget is spent; the text says which."""


class Budget:
    """The time budget of a search; its inner loops spend it.

    Attributes:
        end_reason: what ended the search; empty while it may go on.
    """

    def __init__(
        self,
        seconds: float | None = None,
        work: int | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Allow so many ``seconds`` from now on, so much ``work`` in bounded cuts, and until it is ``interrupted``.

        None or infinite ``seconds`` are any number; raises OptionError for those that are not above 0.
        """
        if seconds is not None and not seconds > 0:
            raise OptionError("seconds", f"expected a time above 0, got {seconds:g}")
        self._began = time.monotonic()
        self._deadline = self._search_until = None
        if seconds is not None:
            self._deadline = self._began + seconds
            self._search_until = self._deadline - min(_AFTERWARDS * seconds, _MOST_AFTERWARDS_S)
        self._work, self._most = 0, work
        self._interrupted = interrupted
        self.end_reason = ""

    def part(self, share: float) -> Budget:
        """Return a budget of its own for a first search: a ``share`` of the time that is left, and as much work."""
        seconds = None if self._deadline is None else max(share * (self._deadline - time.monotonic()), 1e-3)
        return Budget(seconds, self._most, self._interrupted)

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._began

    def spend(self, work: int = 0) -> None:
        """Spend ``work``; raises SearchEndedError where nothing is left of the budget."""
        self._work += work
        if self._interrupted():
            self.end_reason = "an interrupt"
        elif self._search_until is not None and time.monotonic() > self._search_until:
            self.end_reason = "the time limit"
        elif self._most is not None and self._work > self._most:
            self.end_reason = f"the limit of {self._most} bounded cuts"
        if self.end_reason:
            raise SearchEndedError(self.end_reason)

    def begin_afterwards(self) -> None:
        """Give the runners-up half of the time that is left, and any number of cuts."""
        self._most = None
        if self._deadline is not None:
            self._search_until = (time.monotonic() + self._deadline) / 2

    @property
    def is_over(self) -> bool:
        """Whether no time is left, not even for what comes after the search."""
        return self._interrupted() or (self._deadline is not None and time.monotonic() > self._deadline)
