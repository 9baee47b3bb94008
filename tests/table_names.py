"""The names that messages list, from their tables: whoever adds to a table changes no test of a message."""

from __future__ import annotations

from ipusim.hardware.machines import MACHINES
from ipusim.model.layers.table import rows
from ipusim.schedules.registry import names

#: As messages of scenarios list systems.
SYSTEMS = " or ".join(", ".join(MACHINES).rsplit(", ", 1))
#: As messages list schedules, and as those of scenarios do, which take a file too.
SCHEDULES = ", ".join(names())
SCHEDULES_OR_FILES = f"{SCHEDULES} or your own schedule as file.py:function or file.csv"
#: The kinds of layers and losses, and of those that may stand within another layer.
LAYERS = [row.kind for row in rows()]
INNER_LAYERS = [row.kind for row in rows() if row.within]
