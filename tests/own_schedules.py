"""Schedules of one's own, registered for as long as a test needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ipusim.schedules import registry


@contextmanager
def registered(schedule: registry.Schedule) -> Iterator[None]:
    registry.register(schedule)
    try:
        yield
    finally:
        del registry._SCHEDULES[schedule.name]
