"""Schedules in tests: their options as drawn runs need them, their names, and schedules of one's own."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

from ipusim.hardware.machines import MACHINES
from ipusim.model.layers.table import rows
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules import registry
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import find, names

#: Those of the GPU world, whose IPUs go on by themselves.
FREE = tuple(name for name in names() if find(name).syncs[0] is Sync.POINT_TO_POINT)


#: Graphcore's own, whose IPUs meet.
MEETING = tuple(name for name in names() if name not in FREE)


#: Those of ``FREE`` under which stages may compute: segments of a micro-batch are of stages known by their cost.
COMPUTING = tuple(name for name in FREE if find(name).segments == 1)


def shape_of(name: str, mapping: tuple[int, ...], count: int, **options: object) -> PlanShape:
    """Return the shape of a schedule by name, or of an Order that a test makes itself."""
    if name in names():
        options = {"mirrored": find(name).mirrored, "segments": find(name).segments, **options}
    return PlanShape(mapping=mapping, micro_batches=count * options.get("segments", 1), **options)


def is_mirrored(name: str) -> bool:
    """Whether there are two copies of each stage, which takes an even number of IPUs."""
    return name in FREE and find(name).mirrored


def takes_even_ipus(name: str) -> bool:
    return is_mirrored(name) or name == "gis_h"


def multiple_of(name: str, stages: int, ipus: int, training: bool = True) -> int:
    """Return the number of which any multiple is a count that a schedule has, with a stage in each place."""
    steps = 2 * stages if training else stages
    turning = steps - 1 if training else steps
    own = {"grouped": steps, "interleaved": stages, "popart": turning}
    own |= {**dict.fromkeys(("interleaved_1f1b", "chimera", "gis"), ipus), "gis_h": (ipus + 1) // 2}
    own |= dict.fromkeys(("dualpipe", "dualpipe_v"), 2 * ipus)
    return own.get(name, 1)


def options_of(rng: random.Random, name: str, count: int, ipus: int) -> dict[str, object]:
    """Return drawn options of a schedule's order, of a count that stays legal with them, as a PlanShape has them.

    They are those of a scenario's pipeline by the names in ``KEYS``.
    """
    supports = find(name).supports if name in names() else ()
    if Feature.AUTHORS_ORDER in supports:
        return {"authors": rng.random() < 0.5}
    if Feature.GROUPS in supports:
        sizes = [size for size in range(ipus, count + 1) if not 0 < count % size < ipus]
        return {"group_size": rng.choice([0, *sizes])}
    return {}


#: By an attribute of a PlanShape the key of a scenario's pipeline.
KEYS = {"authors": "authors_order", "group_size": "micro_batch_group_size"}


def keys_of(options: dict[str, object]) -> dict[str, object]:
    """Return options of a schedule's order as keys of a scenario's pipeline, without those that say nothing."""
    return {KEYS[name]: value for name, value in options.items() if value}


def ragged(rng: random.Random, name: str, count: int, ipus: int) -> int:
    """Return a count, of which as many groups of micro-batches may have some more each, or a single group fewer."""
    if name not in names() or not find(name).between:
        return count
    groups = max(1, count // ipus)
    return groups * rng.randint(1 if groups == 1 else ipus, ipus + (ipus - 1) // groups)


def takes_one_stage(name: str) -> bool:
    """Whether an IPU has one stage in training."""
    return name in names() and Feature.SEVERAL_STAGES not in find(name).supports


def trains_only(name: str) -> bool:
    return name in FREE and Feature.INFERENCE not in find(name).supports


def is_halved(name: str) -> bool:
    """Whether a schedule has a backward pass in its halves, and so none that recomputes."""
    return name in FREE and Feature.RECOMPUTE_INTERLEAVED not in find(name).supports


def takes_one_chunk(name: str) -> bool:
    """Whether the stages of an IPU follow each other."""
    halved = is_halved(name) and not is_a_v(name) and not goes_around(name)
    return name in ("1f1b", "eager_1f1b", "seq_1f1b") or is_mirrored(name) or halved


def goes_around(name: str) -> bool:
    """Whether stages may go round the IPUs several times."""
    return name in ("interleaved_1f1b", "gis", "gis_h", "breadth_first")


def is_a_v(name: str) -> bool:
    return name in FREE and find(name).per_ipu > 1


def mapping_of(name: str, stages: int) -> tuple[int, ...]:
    """Return the IPUs of an even number of stages under a schedule, with two on each where that is its point."""
    return find(name).mapping(stages, 2 if goes_around(name) else None)


@contextmanager
def registered(schedule: registry.Schedule) -> Iterator[None]:
    registry.register(schedule)
    try:
        yield
    finally:
        del registry._SCHEDULES[schedule.name]


#: As messages of scenarios list systems.
SYSTEMS = " or ".join(", ".join(MACHINES).rsplit(", ", 1))
#: As messages list schedules, and as those of scenarios do, which take a file too.
SCHEDULES = ", ".join(names())
SCHEDULES_OR_FILES = f"{SCHEDULES} or your own schedule as file.py:function or file.csv"
#: The kinds of layers and losses, and of those that may stand within another layer.
LAYERS = [row.kind for row in rows()]
INNER_LAYERS = [row.kind for row in rows() if row.may_be_inner]
