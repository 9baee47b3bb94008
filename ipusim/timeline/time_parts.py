"""List the parts of a run's time and the causes of idle IPUs, with names and colours in charts."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ipusim.base.looks import Look, key_of

#: An IPU's arithmetic, apart from recomputations and weight updates.
COMPUTES: Final = Look("computes", "#56b4e9", "#000000")
#: An IPU's waits while other IPUs recompute.
RECOMPUTATION_WAITS: Final = Look("waits for recomputation", "#fbf8d0", "#847d00", "..")


class TimePart(Enum):
    """A part of a run's time, with its look; in stacking order."""

    USEFUL = Look("useful compute", "#56b4e9", "#000000")
    FILL_AND_DRAIN = Look("fill and drain", "#cfe6f5", "#3b7ea6", "....")
    GAPS_IN_MAIN = Look("gaps in main", "#f4d8c4", "#b06a35", "oo")
    IMBALANCE = Look("imbalance of stages", "#e69f00", "#7a5400", "//")
    COPIES = Look("copies and sync", "#00674b", "#ffffff")
    RECOMPUTATION = Look("recomputation", "#f0e442", "#6b6400", "////")
    HOST = Look("host", "#3d4459", "#ffffff")
    STREAMING = Look("Streaming Memory", "#8c6d00", "#ffffff", "xx")
    UPDATE = Look("collectives and weight update", "#b8669a", "#ffffff", "\\\\")
    DISTURBANCES = Look("disturbances", "#dcd6ee", "#6a5fa0", "||")

    @property
    def words(self) -> str:
        """Name in words."""
        return self.value.name

    @property
    def key(self) -> str:
        """Key in JSON: ``fill_and_drain``."""
        return key_of(self.words)

    @property
    def meaning(self) -> str:
        """Meaning, as the continuation of a sentence."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    TimePart.USEFUL: "mean time of an IPU in forward and backward passes",
    TimePart.FILL_AND_DRAIN: "waits in ramp-up and ramp-down that would remain if all stages took equal time",
    TimePart.GAPS_IN_MAIN: "waits in the main phase, from the order of passes and the sync mode",
    TimePart.IMBALANCE: "extra time from passes of unequal lengths",
    TimePart.COPIES: "copies between IPUs, and the syncs before them",
    TimePart.RECOMPUTATION: "activations computed again",
    TimePart.HOST: "transfers of data and embeddings, work of the host, and the time to start session runs",
    TimePart.STREAMING: "loads and stores",
    TimePart.UPDATE: "sums of gradients, gathers of weights, and weight updates",
    TimePart.DISTURBANCES: "slow, late, stalled, dead or lost parts",
}


class Idle(Enum):
    """Cause of an IPU's idleness, with its look; in the stacking order of charts.

    Waits for passes of other IPUs become fill and drain, gaps in main or imbalance of stages, after a comparison with
    balanced stages.
    """

    PASSES = Look("passes of other IPUs", "#ededed", "#8a8a8a", "--")
    COPIES = TimePart.COPIES.value
    HOST = TimePart.HOST.value
    STREAMING = TimePart.STREAMING.value
    UPDATE = TimePart.UPDATE.value
    DISTURBANCES = TimePart.DISTURBANCES.value
    NO_STAGE = Look("no stage", "#fafafa", "#b5b5b5", "xxxx")

    @property
    def words(self) -> str:
        """Cause in words."""
        return self.value.name
