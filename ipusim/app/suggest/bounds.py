"""Lower bounds on the time of partial or complete cuts, for branch and bound.

A cut divides a model's units, which are layers or given stages, into stages; a partial cut fixes the first stages. The
time is a sum of terms, and a term is a maximum over IPUs (see ``terms``). Two exact dynamic programming tables over the
units, from the last stage back, bound the remaining stages: the minimum of the longest stage, and the minimum sum. For
many remaining cuts, Lagrange multipliers, called prices, bound all maxima together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.suggest.layout import Layout
from ipusim.app.suggest.prices import Ceiling, Maxima, Prices, raise_prices
from ipusim.app.suggest.tables import Numbers, Table, closed, least_longest, least_sum, sums
from ipusim.app.suggest.terms import COLUMNS, INFEED, OUTFEED, RECOMPUTED, TRANSFERS, UPDATE, Copy
from ipusim.app.suggest.units import KINDS, Units

#: Rounding error allowed in sums of fractions, in cycles.
_SLACK: Final = 1e-6
#: Minimum share of the total time of a term that gets tighter bounds.
_HEAVY_SHARE: Final = 0.05
#: Partial cut without stages; its bound holds for every cut.
_ROOT: Final = np.zeros((1, 1), dtype=np.int64)
#: Cycles assigned to impossible cuts.
_UNREACHABLE: Final = float(1 << 62)
#: Number of steps that raise prices.
_PRICE_STEPS: Final = 200
#: Maximum number of coefficients; with more, these steps take too long.
_MOST_COEFFICIENTS: Final = 4_000_000
#: Relative rounding error allowed in bounds by prices.
_ROUNDING: Final = 1e-9


class Bounds:
    """Lower bounds on the cycles of all cuts of ``units`` under one choice."""

    def __init__(self, units: Units, layout: Layout, possible: npt.NDArray[np.bool_] | None = None) -> None:
        """Prepare the bounds.

        Args:
            units: units of the model.
            layout: layout of the choice.
            possible: mask of the stages, between any two units, that fit in their IPU's memory; None for all.
        """
        self._units, self._layout, self._terms = units, layout, layout.terms
        self._stages = layout.plan.shape.stages
        self._transfers = units.sent_forward.astype(np.float64), units.sent_backward.astype(np.float64)
        shape = layout.plan.shape
        # Cycles in which the host fills elements that were not prefetched.
        self._host_cycles = max(shape.micro_batches - units.prefetch_depth, 0) * units.host.fill_of(
            layout.system.replicas
        )
        # Cycles of every cut besides terms: work begins only after the host has filled the first element.
        self._first_fill = 0 if shape.overlapped_io else units.host.fill_of(1)
        self._possible = self._possible_stages(shape.mapping)
        if possible is not None:
            self._possible = self._possible & possible
        self._prices: Prices | None = None
        self._streams = self._stream_cycles()
        self._passes = units.pass_cycles.astype(np.float64)
        if shape.recompute_inline:
            recomputed = units.inline.cycles[[*[0] * (self._stages - 1), 1]]
        else:
            recomputed = np.array([units.pass_cycles[0] * units.inline.recomputes[0]] * self._stages)
        self._recomputed = recomputed.astype(np.float64)
        # An update is divided into at most as many parts.
        parts = layout.offload.replicas if layout.offload.sharded_update else 1
        self._updates = units.updates // parts + self._streams[0]
        #: Mask of possible stages, see :func:`closed`.
        self.allowed = closed(self._possible)
        #: Numbers of the terms with a large share of the time; see :meth:`within`.
        self._heavy: list[int] = []
        #: Minimum cycles of all work besides these terms.
        self._light = 0.0
        #: Minimum cycles of all copies, for bounds by prices.
        self._least_copy_cycles = 0
        self._later_cycles_by_term: dict[tuple[int, int], Numbers] = {}
        terms = self._terms.passes
        #: Tables by term: minimum of the longest remaining stage, and minimum sum of remaining stages.
        self._remainders = [self._least_costs(term.loads.sum(axis=0)) for term in terms]
        # Coefficients of the mean over IPUs, summed over terms, and the least mean of the remaining stages.
        shares = [term.times / term.busy * term.loads.sum(axis=0) for term in terms]
        self._share = np.sum(shares, axis=0)
        self._mean_remainder = self._least_costs(self._share)[1]

    @property
    def least(self) -> int:
        """Lower bound on the cycles of every cut."""
        price = 0 if self._prices is None else self._from_prices(_ROOT)[0]
        return int(max(self.cycles(_ROOT)[0], price))

    @property
    def has_prices(self) -> bool:
        """Whether prices tighten these bounds."""
        return self._prices is not None

    @property
    def cheapest(self) -> tuple[tuple[int, ...], ...]:
        """Cheapest cuts under the last prices."""
        return () if self._prices is None else self._prices.cuts

    def later_by(self, cycles: int) -> Bounds:
        """Return these bounds plus ``cycles``."""
        delayed = copy(self)
        delayed._first_fill += cycles
        return delayed

    def with_prices(
        self, enough: int | None, spend: Callable[[], None], ceiling: Ceiling | None = None, steps: int = _PRICE_STEPS
    ) -> Bounds:
        """Return these bounds with prices.

        Prices are raised in at most ``steps`` steps, and until no cut has a bound below ``enough``. They bound only
        cuts within ``ceiling``. Present prices are raised further.
        """
        if sum(term.rows.size for term in self._terms.passes) > _MOST_COEFFICIENTS:
            return self
        result = copy(self)
        result._least_copy_cycles = int(self._copies(self.values(_ROOT))[0])
        margin = np.inf if enough is None else float(enough - result._least_copy_cycles - result._first_fill)
        result._prices = raise_prices(replace(self._all_maxima, ceiling=ceiling), steps, margin, spend, self._prices)
        return result

    @property
    def _least_maxima(self) -> Numbers:
        """Minimum cycles of each term under any cut; each term counts once."""
        maxima = self._maxima(_ROOT, self.values(_ROOT), range(len(self._terms.passes)))
        return np.array([float(maximum[0]) for maximum in maxima])

    @property
    def _all_maxima(self) -> Maxima:
        """Coefficients and tables of all terms, for the computation of prices."""
        terms = self._terms.passes
        rows = np.zeros((len(terms), max(len(term.rows) for term in terms), COLUMNS, self._stages))
        for number, term in enumerate(terms):
            rows[number, : len(term.rows)] = term.rows.reshape(-1, COLUMNS, self._stages)
        times = np.array([float(term.times) for term in terms])
        of_kind = dict(enumerate(self._passes)) | {RECOMPUTED: self._recomputed, UPDATE: self._updates}
        kinds = [kind for kind in of_kind if rows[:, :, kind].any()]
        tables = tuple(of_kind[kind] for kind in kinds)
        return Maxima(tables, rows[:, :, kinds], times, self._least_maxima, self._possible)

    def _from_prices(self, cuts: Table) -> Table:
        """Return lower bounds on the cycles of ``cuts`` from the prices."""
        assert self._prices is not None
        cycles = self._prices.cycles(cuts) * (1 - _ROUNDING) + self._least_copy_cycles + self._first_fill
        return np.floor(np.minimum(cycles, _UNREACHABLE)).astype(np.int64)

    def _stream_cycles(self) -> tuple[Numbers, float]:
        """Return the least cycles for streaming the optimizer's state: per stage, and in total."""
        system, offload, profiles = self._layout.system, self._layout.offload, self._units.profiles
        sizes = [offload.stored_state_bytes(profile) + offload.stored_weight_bytes(profile) for profile in profiles]
        if system.streaming is None or not self._layout.plan.shape.training or system.free:
            return np.zeros(1), 0.0
        # Rounding up lets each part exceed its share of the sum by a byte.
        amounts = np.maximum(2 * sums(sizes) - 2 * sums([1] * len(sizes)), 0)
        machines = {system.streaming_memory_of(ipu) for ipu in range(system.count)}
        all_ipus = float(system.clock_hz * system.replicas / (system.streaming.bytes_per_s * len(machines)))
        cycles_per_byte = float(system.clock_hz / system.streaming.share(1))
        return np.floor(amounts * cycles_per_byte), float(amounts[0, -1]) * all_ipus

    def _possible_stages(self, mapping: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Return a mask of possible stages between units.

        Units that share weights with the first unit must be on its IPU.
        """
        size = len(self._units) + 1
        possible = np.broadcast_to(np.triu(np.ones((size, size)), 1) > 0, (len(mapping), size, size)).copy()
        for first, second in self._units.shared_pairs:
            if first == 0:
                elsewhere = [stage for stage, ipu in enumerate(mapping) if ipu != mapping[0]]
                possible[elsewhere, : second + 1, second + 1 :] = False
        return possible

    def _least_costs(self, loads: Numbers) -> tuple[Numbers, Numbers]:
        """Return tables over stage and unit: the least longest remaining stage, and the least remaining sum.

        ``loads`` are the coefficients of the columns that describe the stages.
        """
        stage_cycles = self._stage_cycles(loads)
        return least_longest(stage_cycles), least_sum(stage_cycles)

    def _stage_cycles(self, loads: Numbers) -> Numbers:
        """Return the cycles of each stage between any two units, weighted by ``loads``."""
        counts = loads.reshape(COLUMNS, self._stages)
        stage_cycles = np.tensordot(counts[: len(KINDS)].T, self._passes, 1)
        if counts[RECOMPUTED].any():
            stage_cycles += counts[RECOMPUTED][:, None, None] * self._recomputed
        if counts[UPDATE].any():
            stage_cycles += counts[UPDATE][:, None, None] * self._updates
        return np.where(self._possible, stage_cycles, np.inf)

    def tighten(self, limit: int) -> Bounds:
        """Return tighter bounds, valid only for cuts below ``limit``.

        A stage becomes impossible if its passes plus the minimum of other work reach the limit, or if the prices of the
        cheapest cut with the stage reach the limit.
        """
        terms, least = self._terms.passes, self._least_maxima
        copies = float(self._copies(self.values(_ROOT))[0])
        total = sum(term.times * cycles for term, cycles in zip(terms, least, strict=True)) + self._first_fill + copies
        heavy = [number for number, term in enumerate(terms) if term.times * least[number] >= _HEAVY_SHARE * total]
        narrowed = copy(self)
        stage_cycles = {number: self._stage_cycles(terms[number].loads.sum(axis=0)) for number in heavy}
        through_stage = np.full(self._possible.shape, total)
        for number, cycles in stage_cycles.items():
            through_stage += terms[number].times * np.maximum(cycles - least[number], 0)
        allowed = self._possible & (through_stage < limit + 1)
        if self._prices is not None:
            through = self._prices.cycles_through() * (1 - _ROUNDING) + self._least_copy_cycles + self._first_fill
            allowed = allowed & (np.floor(through) < limit)
        narrowed._remainders, narrowed.allowed = list(self._remainders), closed(allowed)
        for number in heavy:
            cycles = np.where(allowed, stage_cycles[number], np.inf)
            narrowed._remainders[number] = least_longest(cycles), least_sum(cycles)
        narrowed._heavy = heavy
        narrowed._light = total - sum(terms[number].times * least[number] for number in heavy)
        return narrowed

    def may_be_lower(self, cuts: Table, limit: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the cuts with a bound by prices below ``limit``."""
        return np.ones(len(cuts), dtype=bool) if self._prices is None else self._from_prices(cuts) < limit

    def lower(self, cuts: Table, limit: int) -> tuple[Table, Table]:
        """Return the numbers of the cuts with a bound below ``limit``, and their bounds.

        The heaviest terms are checked first, with minimum cycles for all other work: most cuts are dropped there.
        """
        lower_bound = np.full(len(cuts), self._light)
        for number, cycles in zip(self._heavy, self._maxima(cuts, self.values(cuts), self._heavy), strict=True):
            lower_bound += self._terms.passes[number].times * cycles
        numbers = np.flatnonzero(lower_bound - _SLACK < limit)
        bounds = self.cycles(cuts[numbers])
        if self._prices is not None:
            bounds = np.maximum(bounds, self._from_prices(cuts[numbers]))
        low = bounds < limit
        return numbers[low], bounds[low]

    def values(self, cuts: Table) -> Numbers:
        """Return the columns of the stages of ``cuts``, shape (COLUMNS * stages, cuts).

        Stages that a partial cut leaves open have passes of 0 cycles, and send the minimum over all units.
        """
        values = np.zeros((COLUMNS, self._stages, len(cuts)))
        for stage in range(cuts.shape[1] - 1):
            start, end = cuts[:, stage], cuts[:, stage + 1]
            values[: len(KINDS), stage] = self._passes[:, start, end]
            values[RECOMPUTED, stage] = self._recomputed[stage, start, end]
            values[UPDATE, stage] = self._updates[start, end]
        values[INFEED, 0], values[OUTFEED, -1] = self._units.host.infeed, self._units.host.outfeed
        borders = cuts[:, 1 : self._stages].T
        for direction, stages, by_unit in zip((0, 1), (slice(None, -1), slice(1, None)), self._transfers, strict=True):
            columns = values[TRANSFERS][direction, stages]
            columns[:] = by_unit[1:-1].min(initial=np.inf)
            columns[: len(borders)] = by_unit[borders]
        if (sends := self._terms.sends) is not None:
            lead, per_byte = sends[..., None]
            # A tensor of 0 bytes is not sent and takes no time.
            values[TRANSFERS] = np.where(values[TRANSFERS] > 0, lead + np.floor(values[TRANSFERS] * per_byte), 0)
        return values.reshape(COLUMNS * self._stages, len(cuts))

    def _maxima(self, cuts: Table, values: Numbers, numbers: Iterable[int]) -> Iterator[Numbers]:
        """Yield the least cycles of the selected terms for ``cuts`` with their ``values``."""
        stages, ends = cuts.shape[1] - 1, cuts[:, -1]
        for number in numbers:
            term, (longest, least_sums) = self._terms.passes[number], self._remainders[number]
            rows, loads = term.sums(values)
            maximum = rows.max(axis=0)
            if stages < self._stages:
                mean = (loads.sum(axis=0) + least_sums[stages, ends]) / term.busy
                maximum = np.maximum(maximum, (loads + self._later_cycles(number, stages)[:, None]).max(axis=0))
                mean -= 1e-12 * np.minimum(maximum, _UNREACHABLE)
                maximum = np.maximum(np.maximum(maximum, longest[stages, ends]), np.floor(mean))
            is_update = term is self._terms.passes[-1]  # the last term: weight updates
            if is_update and self._layout.plan.sync.has_time_steps:
                maximum = np.maximum(maximum, np.floor(self._streams[1]))
            yield maximum

    def _later_cycles(self, number: int, first: int) -> Numbers:
        """Return the least cycles that stages from ``first`` on add to each IPU in a term."""
        if (key := (number, first)) not in self._later_cycles_by_term:
            term = self._terms.passes[number]
            stage_cycles = self._stage_cycles(term.loads.sum(axis=0)).reshape(self._stages, -1).min(axis=1)
            ipus = self._layout.plan.ipus
            least = np.zeros(len(term.loads))
            for stage in range(first, self._stages):
                least[ipus.index(self._layout.plan.shape.mapping[stage])] += stage_cycles[stage]
            self._later_cycles_by_term[key] = least
        return self._later_cycles_by_term[key]

    def cycles(self, cuts: Table) -> npt.NDArray[np.int64]:
        """Return lower bounds on the cycles of each cut's completions; a complete cut has stages + 1 numbers."""
        stages, ends, values = cuts.shape[1] - 1, cuts[:, -1], self.values(cuts)
        total = np.zeros(len(cuts))
        terms = self._terms.passes
        for term, maximum in zip(terms, self._maxima(cuts, values, range(len(terms))), strict=True):
            total += term.times * maximum
        if stages < self._stages:  # each maximum is at least the mean, and means are sums over stages
            means = self._share @ values + self._mean_remainder[stages, ends]
            total = np.maximum(total, np.floor(means - 1e-12 * np.minimum(total, _UNREACHABLE)))
        total += self._first_fill
        total += self._copies(values)
        total = np.minimum(total, _UNREACHABLE)
        return np.maximum(np.floor(total + _SLACK).astype(np.int64), self._host_cycles)

    def _copies(self, values: Numbers) -> Numbers:
        """Return the cycles of all merged copies on the fastest device."""
        cycles = [[_least_copy_cycles(merged_copy, values) for merged_copy in copies] for copies in self._terms.copies]
        return np.asarray(np.min([np.sum(device, axis=0) + np.zeros(values.shape[1]) for device in cycles], axis=0))


def _least_copy_cycles(merged_copy: Copy, values: Numbers) -> Numbers:
    """Return the cycles of a merged copy, multiplied by its count."""
    columns, links = merged_copy.used
    busiest = (links @ values[columns]).max(axis=0)
    return np.asarray(merged_copy.times * (merged_copy.fixed + np.ceil(busiest - _SLACK)))
