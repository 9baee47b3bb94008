"""Define the objects behind a Timeline's integer columns: device, pipeline, and names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ipusim.pipeline.ops import name_of
from ipusim.pipeline.plan import Sync, order_and_sync

#: Longest text of a stage's layers that is shown in full, in characters.
_LAYERS_TEXT: Final = 400


@dataclass(frozen=True)
class TimelineInfo:
    """The objects behind a Timeline's columns.

    Attributes:
        name: name of the program.
        system: name of the system, such as ``c2_server``.
        clock_hz: tile clock, cycles per second.
        ipus: physical number of every logical IPU of the device.
        selection_order: ZIGZAG, SNAKE or HOOF, as used.
        schedule: name of the schedule.
        training: whether the pipeline trains.
        stages: stage names.
        mapping: logical IPU of every stage in replica 0; replica r adds r x shards.
        count: gradient accumulation count, times the segments per micro-batch.
        overlap: overlap length V, the slots of a full time-step.
        time_steps: emitted time-steps of an execution; 1 in point-to-point, with the pipeline as a single time-step.
        executions: executions of the pipeline in the run.
        executions_per_step: repeat count.
        micro_batch_size: samples per micro-batch.
        links: name of every link direction with traffic, such as ``0→1 rung``.
        replicas: replicas of the pipeline, each on equally many consecutive logical IPUs.
        positions: position of every stage in the pipeline, shared by concurrent stages; empty if every stage has its
            number as position.
        mirrored: whether every stage exists twice, the second time on the IPU of the mirrored stage in ``mapping``.
        segments: parts of a micro-batch along the sequence, numbered like micro-batches.
        hosts: hosts with identical runs, each on a separate device.
        slow_ipus: logical IPUs that a disturbance makes slower, ascending; comparisons ignore them.
        title: short description of the run for readers, possibly empty; comparisons ignore the title.
        sync: mode of synchronisation between IPUs; lock-step for files without this entry.
        ipus_at_end: physical number of every logical IPU at the end of the run; empty if unchanged.
        layers: names of every stage's layers, as a single text; empty for stages without layers.
    """

    name: str
    system: str
    clock_hz: int
    ipus: tuple[int, ...]
    selection_order: str
    schedule: str
    training: bool
    stages: tuple[str, ...]
    mapping: tuple[int, ...]
    count: int
    overlap: int
    time_steps: int
    executions: int
    executions_per_step: int
    micro_batch_size: int
    links: tuple[str, ...]
    replicas: int = 1
    positions: tuple[int, ...] = ()
    sync: Sync = Sync.LOCK_STEP
    layers: tuple[str, ...] = ()
    hosts: int = 1
    ipus_at_end: tuple[int, ...] = ()
    mirrored: bool = False
    segments: int = 1
    slow_ipus: tuple[int, ...] = field(default=(), compare=False)
    title: str = field(default="", compare=False)

    @property
    def order_and_sync(self) -> str:
        """Schedule with sync mode, as in titles: ``1f1b in point-to-point``."""
        return order_and_sync(self.schedule, self.sync)

    @property
    def micro_batches(self) -> int:
        """Number of whole micro-batches of an execution."""
        return self.count // self.segments

    def name_of(self, micro_batch: int) -> str:
        """Return a micro-batch's number, ``3``, or a segment's, ``1-0``.

        ``1-0`` is the first segment of micro-batch 1.

        Args:
            micro_batch: number in the Timeline's column.
        """
        return name_of(micro_batch, self.segments)

    @property
    def has_time_steps(self) -> bool:
        """Whether IPUs meet after time-steps."""
        return self.sync.has_time_steps

    @property
    def position_of(self) -> tuple[int, ...]:
        """Position of every stage in the pipeline."""
        return self.positions or tuple(range(len(self.stages)))

    @property
    def layers_of(self) -> tuple[str, ...]:
        """Names of every stage's layers, as a text; empty for a stage without layers."""
        return self.layers or ("",) * len(self.stages)

    @property
    def shards(self) -> int:
        """Number of IPUs per replica."""
        return len(self.ipus) // self.replicas

    @property
    def ipu_rows(self) -> range:
        """Logical IPUs from the top row down, in pictures, pages, traces and tables.

        The order is by number, replica by replica, independent of physical IPUs.
        """
        return range(len(self.ipus))

    @property
    def stages_of_ipu(self) -> dict[int, tuple[int, ...]]:
        """Stages per logical IPU with any stage, across replicas, in rising order."""
        stages_of: dict[int, tuple[int, ...]] = {}
        for replica in range(self.replicas):
            for stage, ipu in enumerate(self.mapping):
                for home in dict.fromkeys((ipu, self.mapping[-1 - stage]) if self.mirrored else (ipu,)):
                    ipu_of_device = replica * self.shards + home
                    stages_of[ipu_of_device] = (*stages_of.get(ipu_of_device, ()), stage)
        return dict(sorted(stages_of.items()))


def layers_text(names: Sequence[str]) -> str:
    """Join names of layers to a text. Long lists keep the first names, the last name and the number of layers."""
    text = ", ".join(names)
    if len(text) <= _LAYERS_TEXT:
        return text
    first = text[: text.rindex(", ", 0, _LAYERS_TEXT)]
    return f"{first}, ... {names[-1]} ({len(names)} layers)"


def ends_text(layers: str) -> str:
    """Return the first and the last layer named in a text from :func:`layers_text`.

    >>> ends_text("flatten, dense256, dense128, dense64"), ends_text("flatten"), ends_text("")
    ('flatten to dense64', 'flatten', '')
    """
    first, *tail = layers.split(", ")
    if not tail:
        return first
    last = tail[-1].removeprefix("... ").partition(" (")[0]
    return f"{first} to {last}"
