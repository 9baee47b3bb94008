"""Pipeline schedules: functions from a program's shape to an Order, registered by name.

As ``schedules`` of :mod:`ipusim.api` this package offers the registry, and schedules from files.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.schedules.features import Feature
    from ipusim.schedules.named import FILE, named_from, schedule_of
    from ipusim.schedules.placement import around, zigzag
    from ipusim.schedules.registry import (
        HOUSE,
        default_serialized,
        expand_names,
        find,
        is_built_in,
        names,
        register,
        shallower,
        temporarily,
    )
    from ipusim.schedules.torch_csv import hang_when_blocking, write_torch_csv
    from ipusim.schedules.words import in_words
else:
    __getattr__, __dir__ = lazy(__name__)
