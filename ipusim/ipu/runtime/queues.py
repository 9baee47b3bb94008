"""Arguments of queues, checked like Graphcore's."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ipusim.api import rules, runs
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import check_deprecated, ordinal_of_queue

#: Default number of elements kept ready by the host.
_PREFETCH_DEPTH: Final = runs.InfeedSpec().prefetch_depth
#: Default capacity of the host's buffer, in elements.
BUFFER_DEPTH: Final = runs.OutfeedSpec().buffer_depth
#: Reason why a release's batches of elements have no effect.
_NO_BATCHES: Final = "io_batch_size of IPUOutfeedQueue will have no effect: each element is sent when it is there."


class IPUOutfeedMode(Enum):
    """Elements to keep: ALL or only the LAST; values are the names in scenarios."""

    ALL = "ALL"
    LAST = "LAST"


class InfeedArguments:
    """Arguments of an infeed, except the dataset.

    Attributes:
        ordinal: device number of fed programs.
        prefetch_depth: elements kept ready by the host.
        optimise_latency: argument of the same name.
    """

    def check(
        self,
        feed_name: str | None,
        device_ordinal: int | None,
        replication_factor: int | None,
        data_to_prefetch: int,
        prefetch_depth: int | None,
        optimise_latency: bool,
    ) -> None:
        """Take the constructor's arguments; raises ProgramError in Graphcore's words, and ProgramTypeError."""
        self.ordinal = ordinal_of_queue(device_ordinal)
        check_deprecated(feed_name, replication_factor)
        ahead = checks.whole("data_to_prefetch", data_to_prefetch, 1)
        if prefetch_depth is None:
            prefetch_depth = ahead if ahead > 1 else _PREFETCH_DEPTH
        self.prefetch_depth = checks.integer("prefetch_depth", prefetch_depth)
        rules.check_prefetch_depth(self.prefetch_depth)
        self.optimise_latency = checks.truth("optimise_latency", optimise_latency)


class OutfeedArguments:
    """Arguments of an outfeed.

    Attributes:
        ordinal: device number of sending programs.
        notes: sentences about arguments without effect.
        outfeed_mode: selection of elements to keep.
        buffer_depth: capacity of the host's buffer, in elements.
        optimise_latency: argument of the same name.
    """

    def check(
        self,
        feed_name: str | None,
        outfeed_mode: IPUOutfeedMode | None,
        device_ordinal: int | None,
        replication_factor: int | None,
        io_batch_size: int,
        buffer_depth: int,
        optimise_latency: bool,
    ) -> None:
        """Take the constructor's arguments; raises ProgramError in Graphcore's words, and ProgramTypeError."""
        mode: object = IPUOutfeedMode.ALL if outfeed_mode is None else outfeed_mode
        if not isinstance(mode, IPUOutfeedMode):
            raise ProgramError(
                "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is "
                f"{type(outfeed_mode)}."
            )
        self.ordinal = ordinal_of_queue(device_ordinal)
        check_deprecated(feed_name, replication_factor)
        batches = checks.whole("io_batch_size", io_batch_size, 1) > 1
        self.notes: tuple[str, ...] = (_NO_BATCHES,) if batches else ()
        rules.check_buffer_depth(checks.integer("buffer_depth", buffer_depth))
        self.outfeed_mode = mode
        self.buffer_depth = buffer_depth
        self.optimise_latency = checks.truth("optimise_latency", optimise_latency)
