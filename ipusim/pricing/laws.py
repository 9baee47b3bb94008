"""Define laws: the formula, rates, hardware figures and source of every kind of cost.

A term is a cost by one law, in cycles, with the numbers put into the formula. Tables of costs show laws and terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ipusim.hardware.copies import FixedParts
from ipusim.hardware.system import System
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.program import PipelineProgram


@dataclass(frozen=True)
class Law:
    """One kind of term.

    Attributes:
        name: label in tables.
        formula: text with names of rates and hardware figures; results are rounded up to whole cycles.
        rates: attributes of :class:`ipusim.hardware.rates.Rates` in the formula.
        figures: attributes of IPU, host or Streaming Memory in the formula.
        source: the formula's origin, or ``assumed``.
        spans: Timeline spans per occurrence, waits included; spans of links, and of parts of a pass, do not count.
        instruction: code of the instructions with this law as their only price.
        cycles: cost of the instruction, by program, system and stage (-1 without a stage).
    """

    name: str
    formula: str
    rates: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    source: str = "assumed"
    spans: int = 1
    instruction: Code | None = None
    cycles: Callable[[PipelineProgram, System, int], int] | None = field(default=None, compare=False)

    def __call__(self, cycles: int) -> Term:
        """Return ``cycles`` as a term of this law."""
        return Term(self, cycles)


class Term(int):
    """Cycles of a law, with inputs and source.

    >>> Term(LAUNCHES, 40) + 2
    42
    """

    law: Law
    cycles: int

    def __new__(cls, law: Law, cycles: int) -> Term:
        """Return ``cycles``, the value of a formula or a sum of values, as a term of a law."""
        term = super().__new__(cls, cycles)
        term.law, term.cycles = law, cycles
        return term

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return the arguments of ``__new__`` for a copy."""
        return self.law, self.cycles


_GUIDE: Final = "IPU Programmer's Guide, chapter 2: tiles sync, exchange, compute"
_PLANNER: Final = "PopLibs ConvModel.cpp: a search over the splits of a product over tiles"
_LINKS: Final = (
    "link_bytes_per_s",
    "link_efficiency",
    "rung_links",
    "machine_rung_bytes_per_s",
    "rung_crossing_links",
    "rail_links",
)
_POD_RATES: Final = (*_LINKS, "gateway_link_bytes_per_s", "gateway_links")
_LATENCIES: Final = ("hop_latency_ns", "gateway_latency_ns")
_SOURCE_OF_RATES: Final = "measured, see the rates"
_TRANSFER: Final = "bytes x clock_hz / {}"

LAUNCHES: Final = Law(
    "launches",
    "compute sets x compute_set_cycles; compute sets of products follow from their plans, of vector work from the "
    "layers",
    ("compute_set_cycles",),
    source=f"{_GUIDE}; {_PLANNER}",
)
EXCHANGE: Final = Law(
    "exchange",
    "bytes that a tile receives / (exchange_bytes_per_cycle_per_tile x exchange_efficiency); for products the bytes "
    "of the busiest tile of their plans, for vector work equal bytes on all tiles",
    ("exchange_efficiency",),
    ("tiles", "exchange_bytes_per_cycle_per_tile"),
    "PopLibs ExchangeEstimator.cpp; equal bytes of vector work on all tiles are assumed",
)
LOADING: Final = Law(
    "loading",
    "blocks of weights x their bytes / 16 bytes per cycle, on the busiest tile",
    source="PopLibs include/popnn/Net.hpp; later chips as GC2 (assumed)",
)
MATRIX: Final = Law(
    "matrix",
    "start of vertices and passes + cycles of rows at the matrix unit's peak / amp_ceiling, on the busiest tile",
    ("amp_ceiling",),
    ("worker_threads", "fp16_macs_per_cycle_per_tile", "fp32_macs_per_cycle_per_tile"),
    "PopLibs ConvPerformanceEstimation.hpp, the vertex of 1 x 1 convolutions",
)
REDUCTION: Final = Law(
    "reduction",
    "bytes of partial sums that a tile receives / (exchange_bytes_per_cycle_per_tile x exchange_efficiency)",
    ("exchange_efficiency",),
    ("exchange_bytes_per_cycle_per_tile",),
    _PLANNER,
)
ADDING: Final = Law(
    "adding",
    "bytes of partial sums of the busiest tile x vector_slowdown / 8",
    ("vector_slowdown",),
    source=_PLANNER,
)
LAYOUT: Final = Law(
    "laying out",
    "products x product_layout_cycles; of pools pool_layout_cycles; variables of an update x variable_layout_cycles",
    ("product_layout_cycles", "pool_layout_cycles", "variable_layout_cycles"),
    source="derived, see the rates",
)
VECTOR: Final = Law(
    "vector",
    "(element-wise + reductions + quotients + transcendental_operations x transcendentals) x bytes of an element x "
    "vector_slowdown / (tiles x 8); pools as if each tile's units filled its workers",
    ("vector_slowdown", "transcendental_operations"),
    ("tiles", "worker_threads"),
    "PopLibs Net.hpp: a 64-bit data path; after the products of the same layer (assumed)",
)
MEMORY: Final = Law(
    "memory",
    "max(0, bytes / (tiles x sram_bytes_per_cycle_per_tile) - loading - matrix - vector)",
    figures=("tiles", "sram_bytes_per_cycle_per_tile"),
    source="assumed: arithmetic and memory traffic overlap, and the longer of both counts",
)
MEASURED: Final = Law("given", "cycles as the scenario gives them", source="the scenario")
COPY_SYNC: Final = Law(
    "copy sync",
    "2 x (hops x hop_latency + pods / 2 x gateway_latency) x clock_hz + internal_sync_cycles + sync_skew_cycles; "
    "hops are 1 + a quarter of a pod's IPUs",
    (*_LATENCIES, "sync_skew_cycles"),
    ("clock_hz", "internal_sync_cycles"),
    "PopLibs Util.cpp, setGlobalSyncLatency; assumed for pods; skew measured, see the rate",
)
PRE_COPY: Final = Law("pre-copy", "pre_copy_cycles", ("pre_copy_cycles",), source=_SOURCE_OF_RATES)
GLOBAL_EXCHANGE: Final = Law(
    "global exchange",
    "pair_exchange or beyond_pair_exchange x clock_hz",
    ("pair_exchange_ns", "beyond_pair_exchange_ns"),
    ("clock_hz",),
    _SOURCE_OF_RATES,
    spans=0,
)
COPY_LATENCY: Final = Law(
    "copy latency",
    "latency of the longest route x clock_hz",
    _LATENCIES,
    ("clock_hz",),
    "assumed equal to the latency of a sync",
    spans=0,
)
COPY_LINK: Final = Law(
    "busiest link",
    _TRANSFER.format("(links x rate of one x link_efficiency, or machine_rung)"),
    _POD_RATES,
    ("clock_hz",),
    "PopLibs Util.cpp, the slowest of addGlobalExchangeConstraints",
)
ROUNDS: Final = Law(
    "rounds",
    "sum over rounds of latency and busiest link",
    (*_POD_RATES, *_LATENCIES),
    ("clock_hz",),
    "of the algorithm, after a sync of each round; additions need no time (assumed)",
    spans=2,
)
POST_COPY: Final = Law("post-copy", "post_copy_cycles", ("post_copy_cycles",), source=_SOURCE_OF_RATES)
INFEED: Final = Law("infeed", _TRANSFER.format("infeed_bytes_per_s"), (), ("clock_hz", "infeed_bytes_per_s"), spans=2)
FILL: Final = Law("host fill", _TRANSFER.format("host_fill_bytes_per_s"), (), ("clock_hz", "host_fill_bytes_per_s"))
DATA: Final = Law(
    "host data",
    _TRANSFER.format("data_rate_bytes_per_s"),
    (),
    ("clock_hz", "data_rate_bytes_per_s"),
    "assumed: replicas whose buffers are filled at once get equal shares of the rate",
    spans=0,
)
OUTFEED: Final = Law(
    "outfeed", _TRANSFER.format("outfeed_bytes_per_s"), (), ("clock_hz", "outfeed_bytes_per_s"), spans=2
)
DRAIN: Final = Law("host drain", _TRANSFER.format("host_drain_bytes_per_s"), (), ("clock_hz", "host_drain_bytes_per_s"))
ROWS_OUT: Final = Law("rows out", OUTFEED.formula, figures=OUTFEED.figures)
GATHER_ROWS: Final = Law(
    "host gather",
    "ids as host drain + rows as host fill",
    figures=(*DRAIN.figures, *FILL.figures),
    source="assumed as fast as the host's buffers, for rows anywhere in memory",
    spans=2,
)
ROWS_IN: Final = Law("rows in", INFEED.formula, figures=INFEED.figures)
APPLY_ROWS: Final = Law("host update", DRAIN.formula, (), DRAIN.figures, "assumed as fast as the host reads")
OUTSIDE_OUT: Final = Law("arrays out", OUTFEED.formula, figures=OUTFEED.figures)
OUTSIDE: Final = Law(
    "host computes",
    "bytes that come as host drain + calls of a library x operation_ns x clock_hz + (2 x multiply-accumulates + other "
    "operations) x clock_hz / operations_per_s + given cycles + bytes that go back as host fill; other operations as "
    "for vector work",
    ("transcendental_operations",),
    (*DRAIN.figures, "operation_ns", "operations_per_s", *FILL.figures),
    "assumed: one rate for all operations, with all other traffic in the caches",
    spans=2,
)
OUTSIDE_IN: Final = Law("arrays in", INFEED.formula, figures=INFEED.figures)
SUM_OUT: Final = Law("gradients out", OUTFEED.formula, figures=OUTFEED.figures)
NETWORK_SUM: Final = Law(
    "network sum",
    "2 x (hosts - 1) x (network_ns x clock_hz + bytes / hosts x clock_hz / network_bytes_per_s)",
    figures=("clock_hz", "network_bytes_per_s", "network_ns"),
    source="a ring all-reduce, as Horovod's; additions take no time (assumed)",
    spans=2,
)
NETWORK_GATHER: Final = Law(
    "network gather",
    "(hosts - 1) x (network_ns x clock_hz + bytes x clock_hz / network_bytes_per_s)",
    figures=NETWORK_SUM.figures,
    source="a ring all-gather, as Horovod's, of the largest share",
)
NETWORK_BROADCAST: Final = Law(
    "network broadcast",
    "log2(hosts), rounded up, x (network_ns x clock_hz + bytes x clock_hz / network_bytes_per_s)",
    figures=NETWORK_SUM.figures,
    source="a binomial tree, as Gloo's below Horovod (assumed)",
)
SUM_IN: Final = Law("gradients in", INFEED.formula, figures=INFEED.figures)
UPDATE_ON_HOST: Final = Law(
    "host update",
    "gradients as host drain + weights as host fill",
    figures=(*DRAIN.figures, *FILL.figures),
    source="assumed: the optimizer's arithmetic hides under the copies of its buffers",
    spans=2,
)
WEIGHTS_IN: Final = Law("weights in", INFEED.formula, figures=INFEED.figures)
HOST_CALL: Final = Law(
    "host call",
    "(session_run + variables x optimizer_value, in PyTorch optimizer_values x pytorch_optimizer_value, / session "
    "runs from one time that the program sends its optimizer's values anew to the next) x clock_hz",
    ("session_run_ns", "optimizer_value_ns", "pytorch_optimizer_value_ns"),
    ("clock_hz",),
    "measured and fitted, see the rates",
)
OFFCHIP_STATE: Final = Law(
    "off-chip state",
    "(bytes of weights x offchip_state, of PyTorch pytorch_offchip_state, + bytes of state in and out of the "
    "machine that streams most x offchip_stream) / 1000 x clock_hz",
    ("offchip_state_ns", "pytorch_offchip_state_ns", "offchip_stream_ns"),
    ("clock_hz",),
    "fitted, see the rates",
)
SLOT: Final = Law(
    "composite pass",
    "the longer of the forward and the backward passes in a slot, or cycles as given",
    source="assumed, see pipeline.overlapped; a tile computes for one pass at a time",
    spans=0,
)
_STREAMS: Final = ("clock_hz", "bytes_per_s", "ipu_bytes_per_s")
LOAD: Final = Law(
    "load",
    "a single IPU: bytes x clock_hz / ipu_bytes_per_s; IPUs that stream at the same time share bytes_per_s",
    figures=_STREAMS,
)
STORE: Final = Law("store", LOAD.formula, figures=_STREAMS)


#: The laws, in module order.
LAWS: Final = tuple(law for law in globals().values() if isinstance(law, Law))
#: Laws pricing a single instruction, by code.
INSTRUCTION_LAWS: Final = {law.instruction: law for law in LAWS if law.instruction is not None}
#: Laws of the fixed parts of a copy between IPUs, in the order of :class:`FixedParts`.
_FIXED_LAWS: Final = (COPY_SYNC, PRE_COPY, GLOBAL_EXCHANGE, COPY_LATENCY, POST_COPY)


def fixed_terms(parts: FixedParts) -> tuple[Term, ...]:
    """Return the fixed parts of a copy between IPUs as terms, leaving out zeros."""
    return tuple(law(cycles) for law, cycles in zip(_FIXED_LAWS, parts, strict=True) if cycles)


def laws_with(rate: str) -> list[Law]:
    """Return the laws that use a rate, by the rate's attribute name."""
    return [law for law in LAWS if rate in law.rates]
