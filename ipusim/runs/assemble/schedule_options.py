"""Reset options of schedule, counts and disturbances, so that requests that differ only in them can share results.

Points of a sweep that differ only in these options then share data, stages, device and prices: the cache finds results
of functions by arguments, which are then equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ipusim.base.cache import shared
from ipusim.runs.request.request import options_set
from ipusim.runs.request.schema import Options

#: Options without effect on data, stages, device and prices, and their fixed values.
_SCHEDULE_OPTIONS: Final[Mapping[str, Any]] = {
    "schedule": "grouped",
    "sync": None,
    "gradient_accumulation_count": 1,
    "micro_batch_group_size": None,
    "authors_order": False,
    "repeat_count": 1,
}


def without_schedule_options(options: Options) -> Options:
    """Return ``options`` with a fixed schedule, fixed counts and no disturbances.

    Equal results are the same object, which serves as a key of caches. Values cached under this key are valid for every
    request whose other options are equal.
    """
    base = options.with_pipeline(**_SCHEDULE_OPTIONS).model_copy(update={"steps": 1, "disturbances": ()})
    # The options set are equal for equal Options, and faster to compare.
    return shared().first_equal(base, substitute=options_set(base))


def micro_batches_of(options: Options, segments: int) -> int:
    """Return the number of micro-batches of one execution; a micro-batch in segments counts once per segment."""
    pipeline = options.pipeline
    return pipeline.gradient_accumulation_count * pipeline.batch_serialization_iterations * segments


def with_schedule_options(base: Options, options: Options) -> Options:
    """Return ``base`` with the schedule, the counts and the disturbances of ``options``.

    Reverses :func:`without_schedule_options`, so that all options can be checked.
    """
    other_options = {"steps": options.steps, "disturbances": options.disturbances}
    return base.with_pipeline(**{name: getattr(options.pipeline, name) for name in _SCHEDULE_OPTIONS}).model_copy(
        update=other_options
    )
