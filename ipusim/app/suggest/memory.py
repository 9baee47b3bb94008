"""Lower bound on the memory of a cut's stages, with the uses of memory of :mod:`ipusim.pipeline.footprint`.

Shared bytes of several layers count with a lower bound. A cut with a bound above the limit therefore never fits. A cut
below the limit may still exceed memory: its footprint decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import hardware, pipelines, pricing
from ipusim.app.suggest.layout import Layout
from ipusim.app.suggest.live_tensors import PARTS, LiveTensors
from ipusim.app.suggest.prices import Ceiling, Maxima, raise_prices
from ipusim.app.suggest.tables import Numbers, Table, least_longest, least_sum, maxima, sums
from ipusim.app.suggest.units import Units
from ipusim.base.cache import shared

#: Number of steps that raise prices (Lagrange multipliers).
_STEPS: Final = 200


@dataclass(frozen=True, eq=False)
class MemoryBound:
    """Bytes of each stage by first unit and unit after the last.

    Tables have shape (stages, units + 1, units + 1).

    Attributes:
        resident: bytes held for the whole run.
        parts: bytes of each stage that are live during passes, shape (PARTS, units + 1, units + 1).
        live: counts of simultaneously live parts of each stage.
        temporary: working memory of the stage's products.
        shared_code: bytes of code shared by several units and stored once per IPU.
        update: bytes loaded by the weight update, which first reuse the products' memory.
        mapping: IPU of each stage.
        sram_bytes: memory of an IPU; None for no limit.
    """

    resident: Table
    parts: Sequence[Table]
    live: LiveTensors
    temporary: Table
    shared_code: Table
    update: Table
    mapping: tuple[int, ...]
    sram_bytes: int | None

    @cached_property
    def _remainders(self) -> tuple[Numbers, Numbers]:
        """Least bytes of the largest remaining stage, and of all remaining stages.

        Both are tables over stages and units.
        """
        stage_bytes = (self.resident + self.temporary + self.shared_code).astype(np.float64)
        return least_longest(stage_bytes), least_sum(self.resident.astype(np.float64))

    @property
    def least_bytes(self) -> int:
        """Least bytes of the fullest IPU under any cut."""
        longest, total = self._remainders
        return int(max(longest[0, 0], total[0, 0] // len(self.live)))

    def bytes(self, cuts: Table) -> Table:
        """Return the fullest IPU's bytes for ``cuts``, shape (cuts, stages + 1).

        Partial cuts count the stages so far.
        """
        return np.asarray(self.of_ipus(cuts).max(axis=0))

    def of_ipus(self, cuts: Table, earlier_bytes: Table | None = None) -> Table:
        """Return the bytes of each IPU for partial cuts, shape (IPUs, cuts).

        ``earlier_bytes`` are the bytes without the last stage, if known.
        """
        count = cuts.shape[1] - 1
        ipus = sorted(self.live)
        ipu_bytes = np.zeros((len(ipus), len(cuts)), dtype=np.int64) if earlier_bytes is None else earlier_bytes
        changed = set(self.mapping[:count] if earlier_bytes is None else self.mapping[count - 1 : count])
        for row, ipu in enumerate(ipus):
            if ipu not in changed:
                continue
            own_stages = [stage for stage in range(count) if self.mapping[stage] == ipu]
            if len(own_stages) == 1 and len(self.live[ipu][0]) == 1:
                ipu_bytes[row] = self.bytes_by_stage[own_stages[0], cuts[:, own_stages[0]], cuts[:, own_stages[0] + 1]]
                continue
            resident, temporary, update, code = np.zeros((4, len(cuts)), dtype=np.int64)
            stages, moments = self.live[ipu]
            parts = np.zeros((len(cuts), len(stages), len(PARTS)), dtype=np.int64)
            for number, stage in enumerate(stages):
                if stage < count:
                    start, end = cuts[:, stage], cuts[:, stage + 1]
                    resident += self.resident[stage, start, end]
                    temporary = np.maximum(temporary, self.temporary[start, end])
                    code = np.maximum(code, self.shared_code[start, end])
                    update += self.update[start, end]
                    parts[:, number] = self.parts[stage][:, start, end].T
            live = (parts.reshape(len(cuts), len(stages) * len(PARTS)) @ moments.T).max(axis=1)
            ipu_bytes[row] = resident + code + temporary + np.maximum(live, update - temporary)
        return ipu_bytes

    def fits(
        self, cuts: Table, allowed: npt.NDArray[np.bool_], earlier_bytes: Table
    ) -> tuple[npt.NDArray[np.bool_], Table]:
        """Return a mask of the ``cuts`` that may fit in memory, and the bytes of each IPU, shape (IPUs, cuts).

        ``allowed`` is the mask of possible remaining stages, which must fit in each IPU's free memory.
        ``earlier_bytes`` are the bytes of each IPU without the last stage.
        """
        if self.sram_bytes is None:
            return np.ones(len(cuts), dtype=bool), earlier_bytes
        stages, ends = cuts.shape[1] - 1, cuts[:, -1]
        longest, totals = self._remainders
        all_bytes = totals[stages, ends]
        for stage in range(stages):
            all_bytes = all_bytes + self.resident[stage, cuts[:, stage], cuts[:, stage + 1]]
        possible = (all_bytes <= self.sram_bytes * len(self.live)) & (longest[stages, ends] <= self.sram_bytes)
        ipu_bytes = self.of_ipus(cuts, earlier_bytes)
        room = self.sram_bytes - ipu_bytes
        possible &= (room >= 0).all(axis=0)
        possible[possible] = self._can_complete(cuts[possible], room[:, possible], allowed)
        return possible, ipu_bytes

    def _can_complete(self, cuts: Table, room: Table, allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return a mask of cuts whose remaining stages can reach the last unit.

        A stage may begin anywhere up to the latest end of the previous stage, and ends as late as memory allows.
        """
        count, stages, size = cuts.shape[1] - 1, len(self.mapping), allowed.shape[-1]
        ipus = sorted(self.live)
        reach, allowed = cuts[:, -1], np.logical_or.accumulate(allowed, axis=1)
        for stage in range(count, stages):
            longer = allowed[stage, reach]
            if (ipu := self.mapping[stage]) in self.mapping[:count]:
                longer = longer & (self._least_resident[stage, reach] <= room[ipus.index(ipu)][:, None])
            last = np.where(longer.any(axis=1), size - 1 - np.argmax(longer[:, ::-1], axis=1), 0)
            reach = np.maximum(np.minimum(last, size - stages + stage), reach)
        return np.asarray(reach == size - 1, dtype=np.bool_)

    @cached_property
    def _least_resident(self) -> Table:
        """Least resident bytes of stages up to a unit, over the first unit and all earlier first units."""
        is_stage = np.triu(np.ones(self.resident.shape[1:], dtype=bool), 1)
        return np.minimum.accumulate(np.where(is_stage, self.resident, np.iinfo(np.int64).max), axis=1)

    @cached_property
    def bytes_by_stage(self) -> Table:
        """Bytes of each stage, between any two units, on an IPU without other stages."""
        result = np.zeros_like(self.resident)
        for stages, moments in self.live.values():
            for number, stage in enumerate(stages):
                live = np.zeros_like(self.temporary)
                for count in np.unique(moments[:, number * len(PARTS) : (number + 1) * len(PARTS)], axis=0):
                    live = np.maximum(live, np.tensordot(count, self.parts[stage], 1))
                constant = self.resident[stage] + self.temporary + self.shared_code
                result[stage] = constant + np.maximum(live, self.update - self.temporary)
        return result

    def possible_stages(self) -> npt.NDArray[np.bool_]:
        """Return a mask of stages that fit on an IPU without other stages."""
        if self.sram_bytes is None:
            return np.ones(self.resident.shape, dtype=bool)
        return np.asarray(self.bytes_by_stage <= self.sram_bytes)

    def of_units(self) -> Table:
        """Return each unit's least bytes on its IPU, under any cut."""
        size = self.bytes_by_stage.shape[-1]
        maximum = np.iinfo(np.int64).max
        least = np.where(np.arange(size)[:, None] < np.arange(size), self.bytes_by_stage.min(axis=0), maximum)
        least_from_earlier = np.minimum.accumulate(least, axis=0)  # minimum over earlier first units
        least_of_pair = np.minimum.accumulate(least_from_earlier[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(least_of_pair.diagonal(1))

    def fullest_bytes(self, possible: npt.NDArray[np.bool_], spend: Callable[[], None]) -> int:
        """Return a lower bound by prices on the bytes of the fullest IPU.

        The bound holds for all cuts of ``possible`` stages.

        Prices are raised until the bound exceeds an IPU's memory, or a cut that may fit is found.
        """
        rows, tables = self._linear_form
        fullest = Maxima(tables, rows[None], np.ones(1), np.zeros(1), possible)
        enough = float("inf") if self.sram_bytes is None else self.sram_bytes * (1 + 1e-9) + 1
        prices = raise_prices(fullest, _STEPS, enough, spend, until_possible=True)
        return int(min(prices.bound * (1 - 1e-9), float(1 << 62)))

    @property
    def ceiling(self) -> Ceiling | None:
        """Limit of each IPU's bytes; None for no limit."""
        rows, tables = self._linear_form
        return None if self.sram_bytes is None else Ceiling(tables, rows, float(self.sram_bytes))

    @cached_property
    def _linear_form(self) -> tuple[Numbers, tuple[Numbers, ...]]:
        """Coefficients of an IPU's bytes at one moment, shape (rows, kinds, stages), and tables of bytes."""
        rows = []
        for stages, moments in self.live.values():
            for moment in moments.reshape(len(moments), len(stages), len(PARTS)):
                for largest in stages:  # an IPU's products and code need at least the memory of each stage's
                    row = np.zeros((len(PARTS) + 2, len(self.mapping)))
                    row[: len(PARTS), list(stages)] = moment.T
                    row[len(PARTS), list(stages)] = 1
                    row[len(PARTS) + 1, largest] = 1
                    rows.append(row)
        parts = np.stack(self.parts).astype(np.float64)
        largest_bytes = (self.temporary + self.shared_code).astype(np.float64)
        return np.array(rows), (*np.moveaxis(parts, 1, 0), self.resident.astype(np.float64), largest_bytes)


def memory_bound(units: Units, layout: Layout, sram_bytes: int | None, code_bytes: int | None) -> MemoryBound:
    """Return the memory bound of stages of ``units`` under a layout.

    Args:
        units: units of the model.
        layout: layout of the stages.
        sram_bytes: memory of an IPU; None for no limit.
        code_bytes: stated bytes of code; None for an estimate.
    """
    shape, offload, profiles = layout.plan.shape, layout.offload, units.profiles
    of_stages = [*[_parts(units, layout, is_last=False)] * (shape.stages - 1), _parts(units, layout, is_last=True)]
    stage_bytes = units.sum_of(
        lambda profile: profile.parameter_bytes - offload.weight_bytes(profile) + profile.untrained_bytes
    )
    if shape.training:
        stage_bytes = stage_bytes + units.sum_of(
            lambda profile: profile.accumulator_bytes - offload.accumulator_bytes(profile)
        )
        stage_bytes = stage_bytes + units.sum_of(offload.resident_state_bytes)
    resident = np.array([stage_bytes] * shape.stages)
    _add_buffers(resident, units, layout, [of_stage[PARTS.index("kept_bytes")] for of_stage in of_stages])
    own_code, shared_code = np.zeros((2, *units.stash.shape), dtype=np.int64)
    if code_bytes is None:
        halves, system = pipelines.Pass.INPUT_GRADIENT in layout.plan.kind, layout.system
        code_bytes, own_code, shared_code = shared()(_code, units, halves, system.ipu, system.rates)
    resident += own_code
    resident[[shape.mapping.index(ipu) for ipu in layout.plan.ipus]] += code_bytes
    state = maxima([offload.loaded_state_bytes(profile) for profile in profiles])
    loaded_bytes = units.sum_of(offload.weight_bytes) + state
    temporary, update = maxima(units.column("temporary_bytes")), loaded_bytes * shape.training
    return MemoryBound(resident, of_stages, layout.live, temporary, shared_code, update, shape.mapping, sram_bytes)


def _code(units: Units, halves: bool, ipu: hardware.IpuSpec, rates: hardware.Rates) -> tuple[int, Table, Table]:
    """Return lower bounds on bytes of code: on every IPU, of units with code of their own, and of shared code.

    ``halves`` tells whether backward passes are split into a half for input and a half for weight gradients.
    """
    tables = np.zeros((2, *units.stash.shape))
    for sets, users in pricing.code_users(units.profiles, ipu, rates, halves=halves):
        uses = np.zeros(len(units), dtype=np.int64)
        uses[list(users)] = 1
        tables[int(len(users) > 1)] += float(sets * rates.compute_set_code) * (sums(uses) > 0)
    own_code, shared_code = ipu.tiles * np.floor(tables).astype(np.int64)
    return pricing.least_code(units.profiles, ipu, rates), own_code, shared_code


def _add_buffers(resident: Table, units: Units, layout: Layout, stashes: Sequence[Table]) -> None:
    """Add the buffers of FIFOs and copies to ``resident``; ``stashes`` are bytes of a micro-batch in each stage."""
    plan, shape = layout.plan, layout.plan.shape
    forward, backward = units.sent_forward, units.sent_backward
    is_merged = plan.copy_rule is pipelines.CopyRule.MERGED or not plan.sync.has_time_steps
    elements = 1 if layout.offload.activations else shape.serialization
    for stage in range(shape.stages):
        if shape.training:
            moves = layout.offload.moved
            count = (
                plan.fifo_depths[stage]
                if moves is None
                else min(plan.fifo_depths[stage], moves.most_kept(shape.mapping))
            )
            resident[stage] += count * stashes[stage]
        if stage:
            crosses = is_merged or shape.mapping[stage - 1] != shape.mapping[stage]
            resident[stage] += elements * backward[:, None] + (forward[:, None] if crosses else 0)
        if stage < shape.stages - 1:
            crosses = is_merged or shape.mapping[stage + 1] != shape.mapping[stage]
            resident[stage] += elements * forward[None, :] + (backward[None, :] if crosses else 0)


def _parts(units: Units, layout: Layout, *, is_last: bool) -> Table:
    """Return PARTS of stages between any two units, for the last stage or an earlier one."""
    shape, stash, inline = layout.plan.shape, units.stash, units.inline
    working, weights = maxima(units.column("working_bytes")), maxima(units.column("weight_gradient_bytes"))
    parts = dict.fromkeys(PARTS, np.zeros_like(stash))
    recomputes_apart = shape.recompute and not is_last
    recomputes = inline.recomputes[int(is_last)] if shape.recompute_inline else np.full(stash.shape, recomputes_apart)
    keeps_nothing = recomputes if shape.training else np.ones_like(recomputes)
    parts["forward_bytes"] = np.maximum(units.sent_forward[None, :], np.where(keeps_nothing, working, 0))
    if shape.training:
        # Stages without a backward pass keep nothing.
        input_bytes = np.append(units.column("input_bytes"), 0)[:, None] * maxima(units.column("has_backward"))
        gradients, recomputed = np.maximum(working, units.sent_backward[:, None]), np.zeros_like(stash)
        kept_bytes = input_bytes if recomputes_apart else stash
        if recomputes_apart:
            parts["recomputed_bytes"] = stash
        elif shape.recompute_inline:
            kept_bytes, recomputed = inline.kept_bytes[int(is_last)], inline.recomputed_bytes[int(is_last)]
        if not layout.offload.activations:
            parts["kept_bytes"] = kept_bytes
        parts["backward_bytes"] = gradients + weights + recomputed
        parts["input_half_bytes"], parts["weight_half_bytes"] = gradients, weights
    return np.stack([np.triu(parts[part], 1) for part in PARTS])
