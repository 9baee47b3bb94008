"""Limit time and work of a search; users may interrupt a search."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ipusim.base.errors import IpusimError, OptionError

#: Share of a suggestion's time that is reserved for work after the search.
_AFTERWARDS: Final = 0.1
_INTERRUPT: Final = "an interrupt"
_TIME_LIMIT: Final = "the time limit"
#: Ends of a search after which more time helps.
TIME_ENDS: Final = (_INTERRUPT, _TIME_LIMIT)
#: Maximum of the reserved time, in seconds.
_MOST_RESERVED_S: Final = 5.0


class SearchEndedError(IpusimError):
    """Raised once a budget is spent; the message names the limit."""


class Budget:
    """Time and work of a search; inner loops report every expense.

    Attributes:
        end_reason: limit that ended the search; empty while the search may continue.
    """

    def __init__(
        self,
        seconds: float | None = None,
        work: int | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start a budget.

        Args:
            seconds: seconds from now; None or infinity sets no limit.
            work: maximum number of cuts whose bounds are computed; unlimited if None.
            interrupted: function that tells whether a user interrupted the search.

        Raises:
            OptionError: if seconds are not above 0.
        """
        if seconds is not None and not seconds > 0:
            raise OptionError("seconds", f"expected a time above 0, got {seconds:g}")
        self._began = time.monotonic()
        self._deadline = self._search_until = None
        if seconds is not None:
            self._deadline = self._began + seconds
            self._search_until = self._deadline - min(_AFTERWARDS * seconds, _MOST_RESERVED_S)
        self._work, self._most = 0, work
        self._interrupted = interrupted
        self.end_reason = ""

    def part(self, share: float) -> Budget:
        """Return a separate budget: a ``share`` of the remaining time, and the same maximum work."""
        seconds = None if self._deadline is None else max(share * (self._deadline - time.monotonic()), 1e-3)
        return Budget(seconds, self._most, self._interrupted)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the search."""
        return time.monotonic() - self._began

    def spend(self, work: int = 0) -> None:
        """Spend ``work``; raises SearchEndedError once a limit is reached."""
        self._work += work
        if self._interrupted():
            self.end_reason = _INTERRUPT
        elif self._search_until is not None and time.monotonic() > self._search_until:
            self.end_reason = _TIME_LIMIT
        elif self._most is not None and self._work > self._most:
            self.end_reason = f"the limit of {self._most} bounded cuts"
        if self.end_reason:
            raise SearchEndedError(self.end_reason)

    def begin_afterwards(self) -> None:
        """Allow half of the remaining time, and any number of cuts, for the simulation of runners-up."""
        self._most = None
        if self._deadline is not None:
            self._search_until = (time.monotonic() + self._deadline) / 2
