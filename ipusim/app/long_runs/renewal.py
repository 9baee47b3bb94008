"""Training as a renewal process: work between checkpoints that a failure takes back to the last one.

Failures come at random, at a mean distance that does not change (exponential); one may also strike while the last one
is recovered from, which then begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, sqrt
from typing import Final

import numpy as np

from ipusim.app.render.arrays import Floats

#: Beyond so many mean distances of failures without a checkpoint, hardly any work is ever done.
_HOPELESS: Final = 32.0
#: Failures that are drawn at once.
_DRAWN: Final = 1024


@dataclass(frozen=True)
class Renewal:
    """A training that fails now and then.

    Attributes:
        update_s: seconds of a weight update.
        mtbf_s: mean seconds between failures.
        checkpoint_s: seconds that writing a checkpoint takes, in which nothing else is done.
        detect_s, restart_s: seconds from a failure until it is seen, and from then until work goes on.

    Example:
        >>> from ipusim.app.long_runs.renewal import Renewal
        >>> training = Renewal(update_s=4.0, mtbf_s=11135.0, checkpoint_s=60.0)
        >>> training.best_updates(), round(training.waste(289), 4)
        (279, 0.1003)
    """

    update_s: float
    mtbf_s: float
    checkpoint_s: float = 0.0
    detect_s: float = 0.0
    restart_s: float = 0.0

    @property
    def recovery_s(self) -> float:
        """Seconds from a failure until work goes on."""
        return self.detect_s + self.restart_s

    @property
    def young_s(self) -> float:
        """Seconds of work between checkpoints after Young (1974), sqrt(2 mu C): the first-order optimum."""
        return sqrt(2 * self.mtbf_s * self.checkpoint_s)

    @property
    def daly_s(self) -> float:
        """Seconds of work between checkpoints after Daly (2006, equation 37), the higher-order optimum."""
        ratio = self.checkpoint_s / (2 * self.mtbf_s)
        if ratio >= 1:
            return self.mtbf_s
        return self.young_s * (1 + sqrt(ratio) / 3 + ratio / 9) - self.checkpoint_s

    @property
    def first_order_waste(self) -> float:
        """Share of the time that is lost at Young's period to first order: sqrt(2 C / mu) + R / mu."""
        return sqrt(2 * self.checkpoint_s / self.mtbf_s) + self.recovery_s / self.mtbf_s

    def first_order(self, work_s: Floats) -> Floats:
        """Return the share of the time that is lost to first order, by seconds of work: C / P + P / (2 mu) + R / mu."""
        return self.checkpoint_s / work_s + work_s / (2 * self.mtbf_s) + self.recovery_s / self.mtbf_s

    def updates(self, work_s: float) -> int:
        """Return the weight updates that come nearest to so many seconds of work, 1 at least."""
        return max(round(work_s / self.update_s), 1)

    def waste(self, updates: float) -> float:
        """Return the share of the time that is not work, with a checkpoint after so many weight updates.

        It is 1 - P / (mu e^(R / mu) (e^((P + C) / mu) - 1)): exact for exponential failures (Daly 2006, equation 13).
        """
        work = updates * self.update_s
        share = (work + self.checkpoint_s) / self.mtbf_s
        if share > 700 or self.recovery_s / self.mtbf_s > 700:  # beyond what a float's exponent holds
            return 1.0
        return 1 - work / (self.mtbf_s * exp(self.recovery_s / self.mtbf_s) * expm1(share))

    def best_updates(self) -> int:
        """Return the weight updates between checkpoints that lose least.

        With x = P / mu and c = C / mu the share lost falls while 1 - e^-(x + c) is more than x, and rises from there
        on: of whole updates the last before or the first behind that loses least. The shares themselves differ too
        little from one update to the next to be compared.
        """
        update, written = self.update_s / self.mtbf_s, self.checkpoint_s / self.mtbf_s
        low, high = 1, max(int(_HOPELESS / update), 1)
        while low < high:
            middle = (low + high) // 2
            falls = -expm1(-(middle * update + written)) > middle * update
            low, high = (middle + 1, high) if falls else (low, middle)
        return min(max(low - 1, 1), low, key=self.waste)

    def lived(self, updates: int, wall_s: float, rng: np.random.Generator) -> Lived:
        """Return the parts of so many seconds, with a checkpoint after so many updates and failures by ``rng``."""
        ends = self._failures(wall_s, rng)
        lasted = np.diff(np.concatenate(([0.0], ends, [wall_s])))
        recovered = np.minimum(lasted, self.recovery_s)
        recovered[0] = 0.0  # nothing has failed before the first
        worked = lasted - recovered
        work = updates * self.update_s
        periods = np.floor(worked / (work + self.checkpoint_s))
        begun = worked - periods * (work + self.checkpoint_s)
        # What was begun when the time is over is not lost; a last update that is not finished is.
        last = min(float(begun[-1]), work)
        saved_s = int(last / self.update_s) * self.update_s
        done = float(periods.sum()) * work + saved_s
        written = float(periods.sum()) * self.checkpoint_s + float(begun[-1]) - last
        detected = np.minimum(recovered, self.detect_s)
        return Lived(
            failures=len(ends),
            work_s=done,
            checkpoints_s=written,
            lost_s=float(begun[:-1].sum()) + last - saved_s,
            detection_s=float(detected.sum()),
            restart_s=float((recovered - detected).sum()),
        )

    def _failures(self, wall_s: float, rng: np.random.Generator) -> Floats:
        """Return the seconds at which something fails, before ``wall_s``."""
        failures, last = [np.empty(0)], 0.0
        while last < wall_s:
            failures.append(last + np.cumsum(rng.exponential(self.mtbf_s, _DRAWN)))
            last = float(failures[-1][-1])
        times = np.concatenate(failures)
        return times[times < wall_s]


@dataclass(frozen=True)
class Lived:
    """The parts of the time of one training, in seconds that add up to it.

    Attributes:
        failures: that struck.
        work_s: of weight updates that were kept.
        checkpoints_s: of writing checkpoints.
        lost_s: of updates and checkpoints that a failure took back.
        detection_s, restart_s: of seeing failures, and of restarting.
    """

    failures: int
    work_s: float
    checkpoints_s: float
    lost_s: float
    detection_s: float
    restart_s: float
