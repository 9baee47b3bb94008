"""What the stages of a cut hold at least, by the same holders as :mod:`ipusim.pipeline.footprint`, before any is made.

Bytes that depend on what several layers keep together are bounded from below, so that a cut that is said not to fit
does not; one that is said to fit may not, which its own footprint tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.order import CopyRule
from ipusim.pricing.code import least_code
from ipusim.study.suggest.alive import PARTS, Moments
from ipusim.study.suggest.layout import Layout
from ipusim.study.suggest.programmes import Numbers, least_longest, least_sum
from ipusim.study.suggest.units import Table, Units, maxima, sums


@dataclass(frozen=True, eq=False)
class Room:
    """Bytes of each stage, by its first unit and the one behind it: tables of shape (stages, units + 1, units + 1).

    Attributes:
        resident: held all the time.
        parts: what is alive while passes run, shape (PARTS, units + 1, units + 1), of a stage that keeps its
            activations and of one that computes them again.
        again: which stages do.
        moments: how often each part is alive at once.
        temporary: what its products take for themselves.
        update: what its weight update loads, which lies where products do first.
        mapping: the IPU of each stage.
        sram_bytes: of an IPU; None where nothing limits it.
    """

    resident: Table
    parts: tuple[Table, Table]
    again: tuple[bool, ...]
    moments: Moments
    temporary: Table
    update: Table
    mapping: tuple[int, ...]
    sram_bytes: int | None

    @cached_property
    def _rests(self) -> tuple[Numbers, Numbers]:
        """By stage and unit, the least that the largest stage from there on holds, and that all hold together."""
        whole = (self.resident + self.temporary).astype(np.float64)
        return least_longest(whole), least_sum(self.resident.astype(np.float64))

    @property
    def least_bytes(self) -> int:
        """What the fullest IPU of any cut holds at least."""
        longest, together = self._rests
        return int(max(longest[0, 0], together[0, 0] // len(self.moments)))

    def bytes(self, cuts: Table) -> Table:
        """Return the bytes of the fullest IPU of each of ``cuts``, shape (cuts, stages + 1): the stages so far."""
        return np.asarray(self.of_ipus(cuts).max(axis=0))

    def of_ipus(self, cuts: Table) -> Table:
        """Return the bytes of each IPU, shape (IPUs, cuts), by the stages so far."""
        count = cuts.shape[1] - 1
        ipus = sorted(set(self.mapping[:count]))
        found = np.zeros((len(ipus), len(cuts)), dtype=np.int64)
        for row, ipu in enumerate(ipus):
            resident, temporary, update = np.zeros((3, len(cuts)), dtype=np.int64)
            stages, moments = self.moments[ipu]
            parts = np.zeros((len(cuts), len(stages), len(PARTS)), dtype=np.int64)
            for number, stage in enumerate(stages):
                if stage < count:
                    start, end = cuts[:, stage], cuts[:, stage + 1]
                    resident += self.resident[stage, start, end]
                    temporary = np.maximum(temporary, self.temporary[start, end])
                    update += self.update[start, end]
                    parts[:, number] = self.parts[self.again[stage]][:, start, end].T
            live = (parts.reshape(len(cuts), len(stages) * len(PARTS)) @ moments.T).max(axis=1)
            found[row] = resident + temporary + np.maximum(live, update - temporary)
        return found

    def fits(self, cuts: Table) -> npt.NDArray[np.bool_]:
        """Return which of ``cuts`` may fit."""
        if self.sram_bytes is None:
            return np.ones(len(cuts), dtype=bool)
        done, at = cuts.shape[1] - 1, cuts[:, -1]
        longest, together = self._rests
        held = together[done, at]
        for stage in range(done):
            held = held + self.resident[stage, cuts[:, stage], cuts[:, stage + 1]]
        possible = (held <= self.sram_bytes * len(self.moments)) & (longest[done, at] <= self.sram_bytes)
        return np.asarray(possible & (self.bytes(cuts) <= self.sram_bytes))


def room_of(units: Units, layout: Layout, sram_bytes: int | None, code_bytes: int | None, checkpoints: bool) -> Room:
    """Return what stages of ``units`` hold under a layout, of ``sram_bytes`` on each IPU.

    ``code_bytes`` are those that are stated; None counts what is estimated of any program. ``checkpoints``:
    activations are computed again from some that are kept, of which nothing is said.
    """
    plan, offload, profiles = layout.plan, layout.offload, units.profiles
    shape = plan.shape
    stash = np.zeros_like(units.stash) if checkpoints else units.stash
    parts = tuple(_parts(units, layout, stash, again=again) for again in (False, True))
    held = [each.parameter_bytes - offload.weight_bytes(each) for each in profiles]
    loaded = [offload.weight_bytes(each) + offload.state_bytes(each) for each in profiles]
    if shape.training:
        sums_held = [each.accumulator_bytes - offload.accumulator_bytes(each) for each in profiles]
        state = [offload.held_state_bytes(each) for each in profiles]
        held = [sum(each) for each in zip(held, sums_held, state, strict=True)]
    again = tuple(shape.recomputes(stage) for stage in range(shape.stages))
    resident = np.array([sums(held)] * shape.stages)
    _add_buffers(resident, units, layout, [parts[each][0] for each in again])
    resident[0] += least_code(profiles, layout.system) if code_bytes is None else code_bytes
    return Room(
        resident,
        (parts[0], parts[1]),
        again,
        layout.moments,
        maxima(units.column("temporary_bytes")),
        sums(loaded) * shape.training,
        shape.mapping,
        sram_bytes,
    )


def _add_buffers(resident: Table, units: Units, layout: Layout, kept: Sequence[Table]) -> None:
    """Add the buffers of FIFOs and copies to what each stage holds; ``kept`` is what each keeps of a micro-batch."""
    plan, shape = layout.plan, layout.plan.shape
    given, back = (
        np.concatenate([[0], units.column("output_bytes")]),
        np.concatenate([units.column("gradient_bytes"), [0]]),
    )
    merged = plan.copy_rule is CopyRule.MERGED or not plan.sync.meets
    elements = 1 if layout.offload.activations else shape.serialization
    for stage in range(shape.stages):
        if shape.training:
            resident[stage] += plan.fifo_depths[stage] * kept[stage]
        if stage:
            crosses = merged or shape.mapping[stage - 1] != shape.mapping[stage]
            resident[stage] += elements * back[:, None] + (given[:, None] if crosses else 0)
        if stage < shape.stages - 1:
            crosses = merged or shape.mapping[stage + 1] != shape.mapping[stage]
            resident[stage] += elements * given[None, :] + (back[None, :] if crosses else 0)


def _parts(units: Units, layout: Layout, stash: Table, *, again: bool) -> Table:
    """Return PARTS of stages between any two units."""
    shape, size = layout.plan.shape, len(units) + 1
    found = np.zeros((len(PARTS), size, size), dtype=np.int64)
    taken = np.concatenate([units.column("input_bytes"), [0]])
    given, back = (
        np.concatenate([[0], units.column("output_bytes")]),
        np.concatenate([units.column("gradient_bytes"), [0]]),
    )
    working, weights = maxima(units.column("working_bytes")), maxima(units.column("weight_gradient_bytes"))
    held = dict.fromkeys(PARTS, np.zeros((size, size), dtype=np.int64))
    held["forward"] = np.broadcast_to(given[None, :], working.shape)
    if again or not shape.training:
        held["forward"] = np.maximum(held["forward"], working)
    if shape.training:
        gradients = np.maximum(working, back[:, None])
        inside = stash if again and shape.recompute_inline else 0
        if not layout.offload.activations:
            held["kept"] = np.broadcast_to(taken[:, None], stash.shape) if again else stash
        held["recomputed"] = stash if again and shape.recompute else held["recomputed"]
        held["backward"] = gradients + weights + inside
        held["input_half"], held["weight_half"] = gradients, weights
    for number, part in enumerate(PARTS):
        found[number] = np.triu(held[part], 1)
    return found
