"""The objects that a Timeline's columns refer to: device, pipeline, and the names of stages, layers and links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ipusim.pipeline.ops import name_of
from ipusim.pipeline.plan import Sync, order_and_sync

#: Characters of the names of a stage's layers that are all told.
_LAYERS_TEXT: Final = 400


@dataclass(frozen=True)
class TimelineInfo:
    """The objects that a Timeline's columns refer to.

    Attributes:
        name: of the program.
        system: name of the system, such as ``c2_server``.
        clock_hz: tile clock, cycles per second.
        ipus: physical number of each logical IPU of the device.
        selection_order: ZIGZAG, SNAKE or HOOF, as used.
        schedule: name of the schedule.
        training: whether the pipeline trains.
        stages: stage names.
        mapping: logical IPU of each stage in replica 0; in replica r, r x shards further on.
        count: gradient accumulation count; times the segments of a micro-batch, where it is in segments.
        overlap: overlap length V, the slots of a full time-step.
        time_steps: emitted time-steps of one execution; 1 in point-to-point, where its pipeline is numbered as one.
        executions: executions of the pipeline in the run.
        executions_per_step: the repeat count.
        micro_batch_size: samples in a micro-batch.
        links: name of each link direction that carries traffic, such as ``0→1 rung``.
        replicas: replicas of the pipeline, each on equally many consecutive logical IPUs.
        positions: the place in the pipeline of each stage; concurrent ones share theirs. Empty: each its own.
        mirrored: whether each stage is there twice, the second time on the IPU of its mirror image in ``mapping``.
        segments: parts of a micro-batch along its sequence, which are numbered as micro-batches are.
        hosts: hosts that run the same, each on a device of its own.
        title: what the run is of, in a few words; empty where no one says it. It is for people to read: infos that
            differ in it alone are equal.
        sync: how IPUs wait for each other; files that do not say it are of lock-step.
        ipus_at_end: physical number of each logical IPU at the end of the run; empty where it is as at the beginning.
        layers: names of the layers of each stage, in one text; empty where stages have none.
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
    title: str = field(default="", compare=False)

    @property
    def order_and_sync(self) -> str:
        """The schedule with its sync mode, as titles have them: ``1f1b in point-to-point``."""
        return order_and_sync(self.schedule, self.sync)

    @property
    def micro_batches(self) -> int:
        """The number of whole micro-batches of one execution."""
        return self.count // self.segments

    def name_of(self, micro_batch: int) -> str:
        """Return the number of a micro-batch, or of its segment: ``3``, or ``1-0`` for the first segment of the second.

        Args:
            micro_batch: as the Timeline's column numbers it.
        """
        return name_of(micro_batch, self.segments)

    @property
    def has_time_steps(self) -> bool:
        """Whether IPUs meet after time-steps."""
        return self.sync.meets

    @property
    def position_of(self) -> tuple[int, ...]:
        """The position of each stage in the pipeline."""
        return self.positions or tuple(range(len(self.stages)))

    @property
    def layers_of(self) -> tuple[str, ...]:
        """The names of each stage's layers, in one text; an empty one where it has none."""
        return self.layers or ("",) * len(self.stages)

    @property
    def shards(self) -> int:
        """The number of IPUs of one replica."""
        return len(self.ipus) // self.replicas

    @property
    def ipu_rows(self) -> range:
        """The logical IPUs from the top row down, as every picture, page, trace file and table lists them.

        By number, which is replica by replica; the physical IPU that each is on orders nothing.
        """
        return range(len(self.ipus))

    @property
    def stages_of_ipu(self) -> dict[int, tuple[int, ...]]:
        """The stages on each logical IPU that holds any, of all replicas, in rising order."""
        stages_of: dict[int, tuple[int, ...]] = {}
        for replica in range(self.replicas):
            for stage, ipu in enumerate(self.mapping):
                for at in dict.fromkeys((ipu, self.mapping[-1 - stage]) if self.mirrored else (ipu,)):
                    ipu_of_device = replica * self.shards + at
                    stages_of[ipu_of_device] = (*stages_of.get(ipu_of_device, ()), stage)
        return dict(sorted(stages_of.items()))


def layers_text(names: Sequence[str]) -> str:
    """Return names of layers as one text; of very many the first ones, the last, and how many there are."""
    text = ", ".join(names)
    if len(text) <= _LAYERS_TEXT:
        return text
    first = text[: text.rindex(", ", 0, _LAYERS_TEXT)]
    return f"{first}, ... {names[-1]} ({len(names)} layers)"


def ends_text(layers: str) -> str:
    """Return the first and the last of the layers that a text as :func:`layers_text` returns it names.

    >>> ends_text("flatten, dense256, dense128, dense64"), ends_text("flatten"), ends_text("")
    ('flatten to dense64', 'flatten', '')
    """
    first, *others = layers.split(", ")
    if not others:
        return first
    last = others[-1].removeprefix("... ").partition(" (")[0]
    return f"{first} to {last}"
