"""A lower bound on what the stages of a cut hold, by the same holders as :mod:`ipusim.pipeline.footprint`.

Bytes that depend on what several layers keep together are bounded from below, so that a cut that is said not to fit
does not; one that is said to fit may not, which its own footprint tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import pipelines, pricing
from ipusim.app.suggest.layout import Layout
from ipusim.app.suggest.live_tensors import PARTS, LiveTensors
from ipusim.app.suggest.prices import Maxima, raised
from ipusim.app.suggest.programmes import Numbers, least_longest, least_sum
from ipusim.app.suggest.units import Table, Units, maxima

#: Steps in which prices of bytes are raised.
_STEPS: Final = 200


@dataclass(frozen=True, eq=False)
class MemoryBound:
    """Bytes of each stage, by its first unit and the one behind it: tables of shape (stages, units + 1, units + 1).

    Attributes:
        resident: held all the time.
        parts: of each stage what is live while passes run, shape (PARTS, units + 1, units + 1).
        live: how often each part of each stage is live at once.
        temporary: what its products take for themselves.
        update: what its weight update loads, which lies where products do first.
        mapping: the IPU of each stage.
        sram_bytes: of an IPU; None where nothing limits it.
    """

    resident: Table
    parts: Sequence[Table]
    live: LiveTensors
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
        """The least bytes of the fullest IPU under any cut."""
        longest, together = self._rests
        return int(max(longest[0, 0], together[0, 0] // len(self.live)))

    def bytes(self, cuts: Table) -> Table:
        """Return the bytes of the fullest IPU of each of ``cuts``, shape (cuts, stages + 1): the stages so far."""
        return np.asarray(self.of_ipus(cuts).max(axis=0))

    def of_ipus(self, cuts: Table) -> Table:
        """Return the bytes of each IPU, shape (IPUs, cuts), by the stages so far."""
        count = cuts.shape[1] - 1
        ipus = sorted(set(self.mapping[:count]))
        ipu_bytes = np.zeros((len(ipus), len(cuts)), dtype=np.int64)
        for row, ipu in enumerate(ipus):
            resident, temporary, update = np.zeros((3, len(cuts)), dtype=np.int64)
            stages, moments = self.live[ipu]
            parts = np.zeros((len(cuts), len(stages), len(PARTS)), dtype=np.int64)
            for number, stage in enumerate(stages):
                if stage < count:
                    start, end = cuts[:, stage], cuts[:, stage + 1]
                    resident += self.resident[stage, start, end]
                    temporary = np.maximum(temporary, self.temporary[start, end])
                    update += self.update[start, end]
                    parts[:, number] = self.parts[stage][:, start, end].T
            live = (parts.reshape(len(cuts), len(stages) * len(PARTS)) @ moments.T).max(axis=1)
            ipu_bytes[row] = resident + temporary + np.maximum(live, update - temporary)
        return ipu_bytes

    def fits(self, cuts: Table) -> npt.NDArray[np.bool_]:
        """Return a mask of the ``cuts`` that may fit."""
        if self.sram_bytes is None:
            return np.ones(len(cuts), dtype=bool)
        done, at = cuts.shape[1] - 1, cuts[:, -1]
        longest, together = self._rests
        all_bytes = together[done, at]
        for stage in range(done):
            all_bytes = all_bytes + self.resident[stage, cuts[:, stage], cuts[:, stage + 1]]
        possible = (all_bytes <= self.sram_bytes * len(self.live)) & (longest[done, at] <= self.sram_bytes)
        return np.asarray(possible & (self.bytes(cuts) <= self.sram_bytes))

    @cached_property
    def alone(self) -> Table:
        """Bytes of each stage, between any two units, on an IPU where no other stage is."""
        alone = np.zeros_like(self.resident)
        for stages, moments in self.live.values():
            for number, stage in enumerate(stages):
                live = np.zeros_like(self.temporary)
                for count in np.unique(moments[:, number * len(PARTS) : (number + 1) * len(PARTS)], axis=0):
                    live = np.maximum(live, np.tensordot(count, self.parts[stage], 1))
                alone[stage] = self.resident[stage] + self.temporary + np.maximum(live, self.update - self.temporary)
        return alone

    def possible_stages(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the stages, between any two units, that fit their IPU if no other stage is there."""
        if self.sram_bytes is None:
            return np.ones(self.resident.shape, dtype=bool)
        return np.asarray(self.alone <= self.sram_bytes)

    def of_units(self) -> Table:
        """Return the least bytes of an IPU that holds a unit, wherever the model is cut: of each unit."""
        size = self.alone.shape[-1]
        none = np.iinfo(np.int64).max
        least = np.where(np.arange(size)[:, None] < np.arange(size), self.alone.min(axis=0), none)
        of_first = np.minimum.accumulate(least, axis=0)  # the least of stages with that first unit or an earlier one
        of_both = np.minimum.accumulate(of_first[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(of_both.diagonal(1))

    def fullest_bytes(self, possible: npt.NDArray[np.bool_], spend: Callable[[], None]) -> int:
        """Return the least bytes of the fullest IPU under any cut of ``possible`` stages, by prices.

        It is sought until it is more than an IPU has, or a cut is found that may fit.
        """
        rows = []
        for stages, moments in self.live.values():
            for moment in moments.reshape(len(moments), len(stages), len(PARTS)):
                for largest in stages:  # an IPU's products take at least what those of one of its stages do
                    row = np.zeros((len(PARTS) + 2, len(self.mapping)))
                    row[: len(PARTS), list(stages)] = moment.T
                    row[len(PARTS), list(stages)] = 1
                    row[len(PARTS) + 1, largest] = 1
                    rows.append(row)
        parts = np.stack(self.parts).astype(np.float64)
        tables = (*np.moveaxis(parts, 1, 0), self.resident.astype(np.float64), self.temporary.astype(np.float64))
        fullest = Maxima(tables, np.array([rows]), np.ones(1), np.zeros(1), possible)
        enough = float("inf") if self.sram_bytes is None else self.sram_bytes * (1 + 1e-9) + 1
        return int(min(raised(fullest, _STEPS, enough, spend).bound * (1 - 1e-9), float(1 << 62)))


def memory_bound(
    units: Units, layout: Layout, sram_bytes: int | None, code_bytes: int | None, checkpoints: bool
) -> MemoryBound:
    """Return the memory bound of stages of ``units`` under a layout, with ``sram_bytes`` on each IPU.

    ``code_bytes`` are those that are stated; None counts what is estimated of any program. ``checkpoints``:
    activations are computed again from some that are kept, of which nothing is said.
    """
    shape, offload, profiles = layout.plan.shape, layout.offload, units.profiles
    stash = np.zeros_like(units.stash) if checkpoints else units.stash
    parts = {recomputes: _parts(units, layout, stash, recomputes=recomputes) for recomputes in (False, True)}
    of_stages = [parts[shape.recomputes(stage)] for stage in range(shape.stages)]
    whole = units.sum_of(lambda profile: profile.parameter_bytes - offload.weight_bytes(profile))
    if shape.training:
        whole = whole + units.sum_of(lambda profile: profile.accumulator_bytes - offload.accumulator_bytes(profile))
        whole = whole + units.sum_of(offload.resident_state_bytes)
    resident = np.array([whole] * shape.stages)
    _add_buffers(resident, units, layout, [of_stage[PARTS.index("kept_bytes")] for of_stage in of_stages])
    resident[0] += pricing.least_code(profiles, layout.system) if code_bytes is None else code_bytes
    loaded = units.sum_of(lambda profile: offload.weight_bytes(profile) + offload.state_bytes(profile))
    temporary, update = maxima(units.column("temporary_bytes")), loaded * shape.training
    return MemoryBound(resident, of_stages, layout.live, temporary, update, shape.mapping, sram_bytes)


def _add_buffers(resident: Table, units: Units, layout: Layout, stashes: Sequence[Table]) -> None:
    """Add the buffers of FIFOs and copies to what each stage holds; ``stashes`` are the stages' of a micro-batch."""
    plan, shape = layout.plan, layout.plan.shape
    forward, backward = units.sent_forward, units.sent_backward
    merged = plan.copy_rule is pipelines.CopyRule.MERGED or not plan.sync.meets
    elements = 1 if layout.offload.activations else shape.serialization
    for stage in range(shape.stages):
        if shape.training:
            moved = layout.offload.moved
            kept = plan.fifo_depths[stage] if moved is None else min(plan.fifo_depths[stage], moved.kept(shape.mapping))
            resident[stage] += kept * stashes[stage]
        if stage:
            crosses = merged or shape.mapping[stage - 1] != shape.mapping[stage]
            resident[stage] += elements * backward[:, None] + (forward[:, None] if crosses else 0)
        if stage < shape.stages - 1:
            crosses = merged or shape.mapping[stage + 1] != shape.mapping[stage]
            resident[stage] += elements * forward[None, :] + (backward[None, :] if crosses else 0)


def _parts(units: Units, layout: Layout, stash: Table, *, recomputes: bool) -> Table:
    """Return PARTS of stages between any two units, of those that compute activations again or keep them."""
    shape = layout.plan.shape
    working, weights = maxima(units.column("working_bytes")), maxima(units.column("weight_gradient_bytes"))
    parts = dict.fromkeys(PARTS, np.zeros_like(stash))
    parts["forward"] = np.broadcast_to(units.sent_forward[None, :], stash.shape)
    if recomputes or not shape.training:
        parts["forward"] = np.maximum(parts["forward"], working)
    if shape.training:
        taken = np.append(units.column("input_bytes"), 0)
        gradients = np.maximum(working, units.sent_backward[:, None])
        if not layout.offload.activations:
            parts["kept_bytes"] = np.broadcast_to(taken[:, None], stash.shape) if recomputes else stash
        if recomputes and shape.recompute:
            parts["recomputed"] = stash
        parts["backward"] = gradients + weights + (stash if recomputes and shape.recompute_inline else 0)
        parts["input_half"], parts["weight_half"] = gradients, weights
    return np.stack([np.triu(parts[part], 1) for part in PARTS])
