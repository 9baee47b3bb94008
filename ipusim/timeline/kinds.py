"""List the kinds of spans (recorded intervals), with properties for tables, pictures, traces and analyses.

A new kind needs a row with the next free number, and code that records spans. Rows stand in the order of the legend,
which is also the order of stacked boxes from the bottom up; saved Timelines hold the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, unique
from functools import cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.base.looks import Look
from ipusim.pipeline.ops import Pass
from ipusim.timeline.kind_row import Part, Row, Track, Use
from ipusim.timeline.time_parts import Idle

#: Looks, uses and rows in common between kinds.
_HOST_IO: Final = Look("host I/O", "#3d4459", "#ffffff")
_HOST_WAIT: Final = Look("host wait", "#f3f3f3", "#8a8a8a", "xxxx", narrowest=4.0)
_TENSOR_WAIT: Final = Look("wait for a tensor", "#e4edf4", "#b9c6d1", "//", narrowest=1.0)
_WAIT_FOR_TENSOR: Final = Use("receive_wait", "wait for a tensor", 5, sync_modes=("no_time_steps",))
_TILE_COPY: Final = Look("pre- and post-copy", "#8cc9b5", "#00674b", "\\\\\\", narrowest=1.0)
_TILE_COPIES: Final = Use("tile_copy", "pre- and post-copy", 1, sync_modes=("time_steps",), idle=Idle.COPIES)
_HOST_TRANSFER: Final = Use("host_transfer", "host I/O", 3, sync_modes=("time_steps", "no_time_steps"), idle=Idle.HOST)
_OVERLAPPED_IO: Final = Use("overlapped_io", "I/O tiles", 6, idle=Idle.HOST)
_HOST_COPY: Final = partial(Row, category="host", look=_HOST_IO, names_micro_batch=True)
_PASS: Final = partial(Row, category="pass")
_COPY: Final = partial(Row, category="copy")
_WAITS: Final = partial(Row, category="wait", part=Part.WAIT)
_ON_IPU: Final = partial(_HOST_COPY, use=_HOST_TRANSFER)
_ON_IO_TILES: Final = partial(_HOST_COPY, use=_OVERLAPPED_IO, track=Track.IO_TILES)
_FAULT: Final = partial(Row, category="fault", part=Part.BETWEEN_RUNS)
_JOINT: Final = partial(Row, category="collective")
_REMOTE: Final = partial(
    Row, category="Streaming Memory", use=Use("remote", "Streaming Memory", 8, idle=Idle.STREAMING)
)


@unique
class SpanKind(IntEnum):
    """The activity of an IPU, a link direction or the host during a span.

    Attributes:
        row: properties of the kind: names, track, colours, use of cycles.

    Example:
        >>> from ipusim.api import SpanKind
        >>> SpanKind.FORWARD.row.name, SpanKind.FORWARD.row.is_pass
        ('F→', True)
    """

    row: Row

    def __new__(cls, row: Row) -> SpanKind:
        """Return the member with the row's number."""
        member = int.__new__(cls, row.number)
        member._value_ = row.number
        member.row = row
        return member

    FORWARD = _PASS(
        Pass.FORWARD,
        doc="A stage's forward pass over a micro-batch.",
        name=f"{Pass.FORWARD.letter}→",
        look=Look("forward", "#56b4e9", "#000000", essential=True),
        use=Use("forward", is_arithmetic=True),
        of_pass=Pass.FORWARD,
    )
    BACKWARD = _PASS(
        Pass.BACKWARD,
        doc="A stage's backward pass over a micro-batch.",
        name=f"{Pass.BACKWARD.letter}←",
        look=Look("backward", "#c44e00", "#ffffff", number="#ffffff", essential=True),
        use=Use("backward", is_arithmetic=True),
        of_pass=Pass.BACKWARD,
    )
    RECOMPUTE = _PASS(
        Pass.RECOMPUTE,
        doc="A stage's forward pass, run again for its backward pass.",
        name=f"{Pass.RECOMPUTE.letter}→",
        look=Look("recomputation", "#f0e442", "#6b6400", "////", essential=True),
        use=Use("recompute", is_arithmetic=True),
        of_pass=Pass.RECOMPUTE,
    )
    INPUT_GRADIENT = _PASS(
        19,
        doc="The half of a stage's backward pass that gives the gradient of its input.",
        name=f"{Pass.INPUT_GRADIENT.letter}⟵",
        look=Look("gradient of the input", "#f2a35e", "#fac99e", "---", essential=True),
        use=Use("input_gradient", is_arithmetic=True),
        of_pass=Pass.INPUT_GRADIENT,
    )
    WEIGHT_GRADIENT = _PASS(
        20,
        doc="The half of a stage's backward pass that gives the gradients of its weights.",
        name=f"{Pass.WEIGHT_GRADIENT.letter}↓",
        look=Look("gradients of the weights", "#009e73", "#4fc3a1", "...", essential=True),
        use=Use("weight_gradient", is_arithmetic=True),
        of_pass=Pass.WEIGHT_GRADIENT,
    )
    ALL_REDUCE = _JOINT(
        12,
        doc="Replicas sum their gradients before the weight update: sync, fixed parts, and all rounds.",
        name="all-reduce of gradients",
        look=Look("all-reduce", "#0b79bd", "#ffffff", "....", "#ffffff", "all-reduce", essential=True),
        use=Use("all_reduce", idle=Idle.UPDATE),
        part=Part.UPDATE,
    )
    HOST_SUM = _JOINT(
        28,
        doc="Gradients go to the host, and their sum over all hosts comes back, before the weight update.",
        name="sum over hosts",
        look=Look("sum over hosts", "#3d4459", "#ffffff", "oo", "#ffffff", "hosts"),
        use=Use("host_sum", idle=Idle.UPDATE),
        part=Part.UPDATE,
    )
    HOST_UPDATE = _JOINT(
        30,
        doc="Gradients go to the host for its weight update, or updated weights come back.",
        name="weight update on the host",
        look=Look("variables of the host", "#7a3b63", "#ffffff", "xx", "#ffffff", "variables"),
        use=Use("host_update", idle=Idle.HOST),
        part=Part.UPDATE,
    )
    ALL_GATHER = _JOINT(
        18,
        doc="Replicas gather a tensor from their shards: sync and all rounds.",
        name="all-gather of shards",
        look=Look("all-gather", "#9a8fd1", "#000000", "oo", word="all-gather", essential=True),
        use=Use("all_gather", "all-gather", 7, idle=Idle.UPDATE),
    )
    COLLECTIVE = _JOINT(
        29,
        doc="A stage runs a collective over all replicas: sync and all rounds.",
        name="collective of a stage",
        look=Look("collective of a stage", "#5d4b9c", "#ffffff", "++", "#ffffff", "collective", essential=True),
        use=Use("collective", "collective", 7, idle=Idle.UPDATE),
    )
    WEIGHT_UPDATE = Row(
        3,
        doc="The stages of an IPU update their weights.",
        name="weight update",
        category="weight update",
        look=Look("weight update", "#b8669a", "#ffffff", "\\\\\\\\", "#000000", "update", essential=True),
        use=Use("weight_update", is_arithmetic=True),
        part=Part.UPDATE,
    )
    INFEED = _ON_IPU(7, doc="Host to IPU copy, on the IPU that holds the first stage.", name="infeed")
    OUTFEED = _ON_IPU(8, doc="IPU to host copy, on the IPU that holds the last stage.", name="outfeed")
    HOST_ROWS = _ON_IPU(
        27,
        doc="Rows of a table on the host come to the IPU, or indices and gradients of rows go to the host.",
        name="rows of the host",
    )
    OUTSIDE = _ON_IPU(
        31,
        doc="Arrays go to the host for a computation within a pass, or the results come back.",
        name="to the host and back",
    )
    OVERLAPPED_INFEED = _ON_IO_TILES(
        15, doc="Host to IPU copy on the I/O tiles, during passes of the same IPU.", name="infeed"
    )
    OVERLAPPED_OUTFEED = _ON_IO_TILES(
        16, doc="IPU to host copy on the I/O tiles, during passes of the same IPU.", name="outfeed"
    )
    REMOTE_LOAD = _REMOTE(
        13,
        doc="An IPU loads from its Streaming Memory.",
        name="load from Streaming Memory",
        look=Look("load from Streaming Memory", "#b5893a", "#000000", word="load"),
    )
    REMOTE_STORE = _REMOTE(
        14,
        doc="An IPU stores to its Streaming Memory.",
        name="store to Streaming Memory",
        look=Look("store to Streaming Memory", "#7a5c12", "#ffffff", "//", "#ffffff", "store"),
    )
    EXCHANGE = _COPY(
        5,
        doc="The global exchange of a merged inter-IPU copy, up to the last link's last byte.",
        name="inter-IPU copy",
        look=Look("exchange", "#00674b", "#ffffff"),
        use=Use("exchange", "exchange", 1, sync_modes=("time_steps",), idle=Idle.COPIES),
    )
    PRE_COPY = _COPY(
        24,
        doc="The tiles of all IPUs arrange the data of a merged inter-IPU copy before the copy.",
        name="pre-copy",
        look=_TILE_COPY,
        use=_TILE_COPIES,
    )
    POST_COPY = _COPY(
        25,
        doc="The tiles of all IPUs store the data of a merged inter-IPU copy after the copy.",
        name="post-copy",
        look=_TILE_COPY,
        use=_TILE_COPIES,
    )
    SYNC = Row(
        4,
        doc="All IPUs meet before a merged inter-IPU copy.",
        name="sync",
        category="sync",
        look=Look("sync", "#c9c9c9", "#000000", narrowest=1.0),
        use=Use("sync", "sync", 2, sync_modes=("time_steps",), idle=Idle.COPIES),
    )
    HOST_WAIT = _WAITS(
        9,
        doc="An IPU waits for the host: an infeed is empty, an outfeed is full, or a host call is under way.",
        name="wait for host",
        look=_HOST_WAIT,
        use=Use("host_wait", "host wait", 4, sync_modes=("time_steps", "no_time_steps"), idle=Idle.HOST),
    )
    OVERLAPPED_WAIT = _WAITS(
        17,
        doc="The I/O tiles of an IPU wait for a late host.",
        name="wait for host",
        look=_HOST_WAIT,
        track=Track.IO_TILES,
    )
    RECEIVE_WAIT = _WAITS(
        21,
        doc="An IPU waits for a tensor that is not sent yet, or in transit.",
        name="wait for a tensor",
        look=_TENSOR_WAIT,
        use=_WAIT_FOR_TENSOR,
    )
    BLOCKING_SEND = _COPY(
        22,
        doc="An IPU sends a tensor and waits until its delivery.",
        name="send",
        look=Look("send", "#00674b", "#77b8a5", "||"),
        use=Use("blocking_send", "send", 1, idle=Idle.COPIES),
    )
    SEND = _COPY(23, doc="A tensor travels between two IPUs while both compute.", name="send", track=Track.SEND)
    MOVE_OUT = _COPY(
        37,
        doc="A stage's activations of a micro-batch go to another IPU while their IPU computes.",
        name="activations out",
        track=Track.SEND,
    )
    MOVE_BACK = _COPY(
        38,
        doc="A stage's activations of a micro-batch come back from another IPU while their IPU computes.",
        name="activations back",
        track=Track.SEND,
    )
    ACTIVATION_STORE = _COPY(
        40,
        doc="A stage's activations of a micro-batch go to Streaming Memory while their IPU computes.",
        name="store of activations",
        track=Track.SEND,
    )
    ACTIVATION_LOAD = _COPY(
        41,
        doc="A stage's activations of a micro-batch come back from Streaming Memory while their IPU computes.",
        name="load of activations",
        track=Track.SEND,
    )
    MOVE_WAIT = _WAITS(
        39,
        doc="An IPU waits for activations moved out or back.",
        name="wait for activations",
        look=_TENSOR_WAIT,
        use=_WAIT_FOR_TENSOR,
    )
    SYNC_WAIT = _WAITS(
        10,
        doc="An IPU has finished its part of a time-step and waits for slower IPUs.",
        name="wait for sync",
        look=Look("sync wait", "#ededed", "#000000"),
        use=Use("sync_wait", "sync wait", 5, sync_modes=("time_steps",)),
    )
    HOST_CALL = Row(
        26,
        doc="The host works between two session runs: host code, losses, the learning rate.",
        name="between session runs",
        category="host",
        look=Look("host between session runs", "#6f7585", "#ffffff", "xx", "#ffffff", "host"),
        use=Use("host_call", "host call", 7, idle=Idle.HOST),
        part=Part.BETWEEN_RUNS,
    )
    CHECKPOINT = _FAULT(
        32,
        doc="All IPUs wait while a checkpoint is written; a run that loses an IPU resumes from the checkpoint.",
        name="checkpoint",
        look=Look("checkpoint", "#dcd6ee", "#6a5fa0", "...", "#3d3566", "checkpoint", essential=True),
        use=Use("checkpoint", "checkpoint", 7, idle=Idle.DISTURBANCES),
    )
    LOST_WORK = _FAULT(
        33,
        doc="Executions since the last checkpoint, up to the loss of an IPU; all are repeated.",
        name="lost work",
        look=Look("lost work", "#f6d5d5", "#a33a3a", "xxx", "#6b1010", "lost", essential=True),
        use=Use("lost_work", "lost work", 7, idle=Idle.DISTURBANCES),
    )
    DETECTION = _FAULT(
        34,
        doc="An IPU is lost, before detection of the loss.",
        name="detection",
        look=Look("detection of the loss", "#f3e0c8", "#8a5a12", "++", "#4a2f00", "detection", essential=True),
        use=Use("detection", "detection", 7, idle=Idle.DISTURBANCES),
    )
    RESTART = _FAULT(
        35,
        doc="The program starts again from the last checkpoint.",
        name="restart",
        look=Look("restart", "#d9e4d2", "#4b6e2f", "\\\\", "#233a10", "restart", essential=True),
        use=Use("restart", "restart", 7, idle=Idle.DISTURBANCES),
    )
    SPARE = _FAULT(
        36,
        doc="The program starts again from the last checkpoint, with a spare IPU instead of the lost IPU.",
        name="restart on a spare IPU",
        look=Look("restart on a spare IPU", "#9fc5b0", "#1f4f38", "//", "#0d2a1c", "spare", essential=True),
        use=Use("spare_restart", "spare restart", 7, idle=Idle.DISTURBANCES),
    )
    LINK = _COPY(
        6,
        doc="One link direction carries its share of a merged copy, or single tensors.",
        name="carry",
        track=Track.LINK,
    )
    HOST = Row(
        11,
        doc="The host prepares an infeed element, takes an outfeed element, or serves a host call.",
        name="host",
        category="host",
        track=Track.HOST,
    )


def kinds_with(condition: Callable[[Row], object]) -> tuple[SpanKind, ...]:
    """Return the kinds whose row meets ``condition``, in the order of numbers."""
    return tuple(kind for kind in sorted(SpanKind) if condition(kind.row))


def by_number(value: Callable[[Row], Any], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Return the ``value`` of every kind's row as an array, indexed by kind number."""
    return np.array([value(kind.row) for kind in sorted(SpanKind)], dtype=dtype)


def of_kinds(column: npt.NDArray[np.int64], kinds: Sequence[SpanKind]) -> npt.NDArray[np.bool_]:
    """Return a mask of a Timeline's column of kinds, true at ``kinds``.

    A look-up in a table is much faster than a search.
    """
    return _mask_of(tuple(kinds)).take(column)


@cache
def _mask_of(kinds: tuple[SpanKind, ...]) -> npt.NDArray[np.bool_]:
    return np.array([kind in kinds for kind in sorted(SpanKind)])  # by number


#: Passes of stages over micro-batches.
PASSES: Final = kinds_with(lambda row: row.is_pass)
#: Kind of every Pass, by the Pass's number.
KIND_OF_PASS: Final = np.array([next(kind for kind in PASSES if kind.row.of_pass is of_pass) for of_pass in Pass])
#: Pass of every kind; -1 for kinds that are no pass.
PASS_OF_KIND: Final = by_number(lambda row: -1 if row.of_pass is None else row.of_pass, np.int64)
#: Kinds of a stage's arithmetic.
COMPUTE_KINDS: Final = kinds_with(lambda row: row.use is not None and row.use.is_arithmetic)
#: Kinds on the tracks of IPUs.
IPU_KINDS: Final = kinds_with(lambda row: row.track.is_on_ipu)
#: Kinds on I/O tiles, which work beside an IPU's other tiles.
IO_TILE_KINDS: Final = kinds_with(lambda row: row.track is Track.IO_TILES)
#: Kinds beside an IPU that may overlap each other: tensors in flight.
SEND_KINDS: Final = kinds_with(lambda row: row.track is Track.SEND)
#: Moves of activations out, and stores to Streaming Memory.
OUT_KINDS: Final = (SpanKind.MOVE_OUT, SpanKind.ACTIVATION_STORE)
#: Moves of activations back, and loads from Streaming Memory.
BACK_KINDS: Final = (SpanKind.MOVE_BACK, SpanKind.ACTIVATION_LOAD)
#: Moves of activations between IPU and Streaming Memory.
STREAMED_KINDS: Final = (SpanKind.ACTIVATION_STORE, SpanKind.ACTIVATION_LOAD)
#: Every use of an IPU's cycles, in the order of ``summary.json``.
USES: Final = tuple(dict.fromkeys(use for kind in sorted(SpanKind) if (use := kind.row.use) is not None))
#: Every look, in the order of the legend.
LOOKS: Final = tuple(dict.fromkeys(look for kind in SpanKind if (look := kind.row.look) is not None))
