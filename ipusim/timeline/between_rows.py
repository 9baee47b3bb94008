"""Rows of the kinds of spans that lie between two executions, in which all IPUs of the device stand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from ipusim.base.looks import Look
from ipusim.timeline.kind_row import Part, Row, Use
from ipusim.timeline.time_parts import Idle

_FAULT: Final = partial(Row, category="fault", part=Part.BETWEEN)

HOST_CALL: Final = Row(
    doc="The host has ended a session run and begins the next: its own code, losses, the learning rate.",
    name="between session runs",
    category="host",
    colour="black",
    look=Look("host between session runs", "#6f7585", "#ffffff", "xx", "#ffffff", "host"),
    use=Use("host_call", "host call", 7, idle=Idle.HOST),
    part=Part.BETWEEN,
)
CHECKPOINT: Final = _FAULT(
    doc="All IPUs stand while a checkpoint is written, from which a run goes on that has lost an IPU.",
    name="checkpoint",
    colour="grey",
    look=Look("checkpoint", "#dcd6ee", "#6a5fa0", "...", "#3d3566", "checkpoint", essential=True),
    use=Use("checkpoint", "checkpoint", 7, idle=Idle.DISTURBANCES),
)
LOST_WORK: Final = _FAULT(
    doc="Executions since the last checkpoint, up to the loss of an IPU: all of them are done again.",
    name="lost work",
    colour="terrible",
    look=Look("lost work", "#f6d5d5", "#a33a3a", "xxx", "#6b1010", "lost", essential=True),
    use=Use("lost_work", "lost work", 7, idle=Idle.DISTURBANCES),
)
DETECTION: Final = _FAULT(
    doc="An IPU is lost, and it has not been noticed.",
    name="detection",
    colour="bad",
    look=Look("detection of the loss", "#f3e0c8", "#8a5a12", "++", "#4a2f00", "detection", essential=True),
    use=Use("detection", "detection", 7, idle=Idle.DISTURBANCES),
)
RESTART: Final = _FAULT(
    doc="The program starts again from the last checkpoint.",
    name="restart",
    colour="good",
    look=Look("restart", "#d9e4d2", "#4b6e2f", "\\\\", "#233a10", "restart", essential=True),
    use=Use("restart", "restart", 7, idle=Idle.DISTURBANCES),
)
SPARE: Final = replace(
    RESTART,
    doc="The program starts again from the last checkpoint, with a spare IPU in the place of the lost one.",
    name="restart on a spare IPU",
    look=Look("restart on a spare IPU", "#9fc5b0", "#1f4f38", "//", "#0d2a1c", "spare", essential=True),
    use=Use("spare_restart", "spare restart", 7, idle=Idle.DISTURBANCES),
)
