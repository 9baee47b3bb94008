"""Rates: every constant that turns work, bytes and meetings into time, with unit, source and plausible range.

Figures of a chip, its host and its memory stand with these (:mod:`ipusim.hardware.generations`,
:mod:`ipusim.hardware.host`, :mod:`ipusim.hardware.streaming`). Rates are what is left: what
links and products reach of what is nominal. They are a value, so that they can be named in
a scenario, varied, fitted and printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Final

from ipusim.base.errors import QuantityError
from ipusim.base.near_names import did_you_mean, listed
from ipusim.hardware.hashed_once import HashedOnce
from ipusim.hardware.rate import Rate, described

_UTIL: Final = "PopLibs lib/poplibs_test/Util.cpp"
_STENCIL: Final = "T. Louw's stencil experiments on GC2 (lbm-graphcore, gaussian-blur-scaling)"
_PRODUCTS: Final = "dense products measured on hardware (Graphcore Research, sparsity-benchmarks)"
_PODS: Final = "fitted to published throughputs of pods (`ipusim validate`)"
_PROFILER: Final = "a dense layer profiled with Poplar 3.0 (Graphcore's ipu_tensorflow_addons, profiler_test.py)"
_BENCHMARKS: Final = (
    "PopLibs' benchmark rows (tests/benchmark_results.csv before 3a650a11), modelled cycles of GC2 and GC200"
)
_FIT: Final = "fitted to measured dense products (`ipusim validate`)"


_SHARE: Final = (Fraction(1, 100), 1)
_HOST_NS: Final = (0, 100 * 10**9)
_SECOND_NS: Final = (0, 10**9)
_LINK_RATE: Final = (10**6, 10**14)
_LINKS: Final = (1, 10)


@dataclass(frozen=True)
class Rates(HashedOnce):
    """The value of every rate; :data:`RATES` says what each is.

    Attributes:
        file: where those that were chosen are from; empty where a scenario says them itself.

    Raises:
        QuantityError: for a rate out of its bounds.

    Example:
        >>> from fractions import Fraction
        >>> from ipusim.api import Rates
        >>> Rates(hop_latency_ns=Fraction(20)).hop_latency_ns
        Fraction(20, 1)
    """

    amp_ceiling: Fraction = described(
        Fraction("0.9433"),
        "of peak",
        _SHARE,
        part="computation",
        meaning="what rows that stream past reach of the matrix unit's multiply-accumulates",
        source=_FIT,
        plausible=("0.80", "0.95"),
        evidence=f"{_PRODUCTS}, large n; all of it in PopLibs' estimate, which has no memory conflicts",
    )
    exchange_efficiency: Fraction = described(
        Fraction("1.191"),
        "of nominal",
        (Fraction(1, 100), 10),
        part="computation",
        meaning="what a tile receives of the exchange's nominal bytes in a cycle; twice that where a pair of tiles "
        "shares an operand",
        source=_FIT,
        plausible=("0.7", "1.3"),
        evidence="Poplar tutorial 6 measures 0.5 % more than PopLibs' rule (ExchangeEstimator.cpp); fits",
    )
    compute_set_cycles: Fraction = described(
        Fraction("614.6"),
        "cycles",
        (0, 10**6),
        part="computation",
        meaning="sync, start and code of each compute set, of a product or of vector work",
        source=_FIT,
        plausible=(300, 2000),
        evidence=f"{_PRODUCTS}: the fixed 1,900 to 2,600 cycles of the smallest are about three sets; the sync is 150",
    )
    vector_slowdown: Fraction = described(
        Fraction("3.053"),
        "cycles",
        (Fraction(1, 10), 100),
        part="computation",
        meaning="of a tile for an operation on the 8 bytes of its vector unit's path, loads and stores included",
        source=_FIT,
        plausible=("2.5", 5),
        evidence="hand-written stencils reach 1.03 to 1.45 of 3.9 TFLOP/s in single precision; fits 2.8 to 5.2",
    )
    transcendental_operations: Fraction = described(
        Fraction("4.7"),
        "operations",
        (1, 1000),
        part="computation",
        meaning="operations of a tile's vector unit that one exp, log, tanh or square root takes as long as",
        source="the mean of PopLibs' cycles of these four in both types, over those of a square "
        "(lib/popops/popopsCycleEstimators.hpp)",
        plausible=(2, Fraction("11.5")),
        evidence="the same: exp, log and tanh 2 in half precision and 3 to 6 in single, a square root of a half 11.5",
    )
    product_layout_cycles: Fraction = described(
        900,
        "cycles",
        (0, 10**6),
        part="computation",
        meaning="of a training program for each product, in which its operands are laid out anew; products that were "
        "measured alone have none",
        source=f"derived from {_BENCHMARKS}: what makes small products and convolutions of all three passes as long",
        plausible=(860, 1120),
        evidence="the same: 1,120 by the rows of GC2 alone, with which small ones of GC200 go from 0.78 to 1.06",
    )
    pool_layout_cycles: Fraction = described(
        3000,
        "cycles",
        (0, 10**6),
        part="computation",
        meaning="the same for each pass of a pool",
        source=f"derived from {_BENCHMARKS}: the median of what 20 pools leave",
        plausible=(2000, 4000),
        evidence="the same: but for two pools of 8 x 8 images, which leave more",
    )
    variable_layout_cycles: Fraction = described(
        16_600,
        "cycles",
        (0, 10**6),
        part="computation",
        meaning="the same of each variable at a weight update: its gradient, learning rate and casts",
        source=_PODS,
        plausible=(5000, 20_000),
        evidence="ResNet-50's 161 variables leave 1.2 and 1.4 ms an update on a Bow, 2.0 on a GC200; six of a small "
        "network 80,000 cycles on either",
    )
    program_code: Fraction = described(
        4490,
        "B",
        (0, 10**6),
        part="memory",
        meaning="on each tile, of the code that every program has, and of the workers' stacks",
        source=f"{_PROFILER}: 32.8 MiB, less 25.9 of tensors and 0.6 of the layer's own code, over 1,472 tiles",
        plausible=(3000, 6000),
        evidence="a sum of two numbers on GC2, with stacks 4,358 bytes (Graphcore's TensorFlow, compilation report)",
    )
    compute_set_code: Fraction = described(
        137,
        "B",
        (0, 10**5),
        part="memory",
        meaning="on each tile, of what each compute set adds to that: its start, its exchange, its vertices",
        source=f"{_PROFILER}: 590 KiB of a dense layer over 1,472 tiles, of about three compute sets (assumed)",
        plausible=(50, 500),
        evidence="one product stands for all; large and irregular exchanges take several times as much",
    )
    link_bytes_per_s: Fraction = described(
        Fraction(128 * 2**30, 8),
        "bytes/s",
        _LINK_RATE,
        part="links",
        meaning="one IPU-Link in one direction",
        source=f"{_UTIL}: linkBandwidth, 128 Gibit/s",
        plausible=(16 * 10**9, Fraction(128 * 2**30, 8)),
        evidence="Graphcore's C600 datasheet: 64 GB/s each way over 4 links",
    )
    link_efficiency: Fraction = described(
        Fraction(85, 100),
        "of nominal",
        _SHARE,
        part="links",
        meaning="what a link's protocol leaves; of GW-Links assumed",
        source=f"{_UTIL}: linkEfficiency",
        plausible=("0.83", "0.85"),
        evidence="Graphcore's gc-iputraffictest on an M2000: 26.5 GB/s each way, if over 2 links",
    )
    rung_links: Fraction = described(
        4,
        "links",
        _LINKS,
        part="links",
        meaning="IPU-Links of a C2 card, a rung, for the traffic of its own two IPUs",
        source=f"{_UTIL}: numIntraIpuLinks",
        plausible=(4, 6),
        evidence="PopLibs of 2016 and Graphcore's glossary: all 6 of a card",
    )
    machine_rung_bytes_per_s: Fraction = described(
        Fraction(423_312_076_496, 8 * 2),
        "bytes/s",
        _LINK_RATE,
        part="links",
        meaning="a rung of an IPU-Machine in one direction, for the traffic of its own two IPUs",
        source="measured: Graphcore's gc-iputraffictest, devices 2 and 3 of an M2000, 423.3 Gbit/s both ways together; "
        "Bow-2000 assumed alike",
        plausible=(Fraction(423_312_076_496, 8 * 2), Fraction(128 * 2**30 * 6 * 85, 8 * 100)),
        evidence="the test moves 64 kB x 1000 from each of 32 tiles and does not say its links: 2 at 83 % of 16 GB/s "
        "would do, and the BMC user guide has 6 within a pair",
    )
    rung_crossing_links: Fraction = described(
        2,
        "links",
        _LINKS,
        part="links",
        meaning="IPU-Links of a rung for traffic that goes on to another rung",
        source=f"{_UTIL}: numCrossRoutingLinks",
        evidence="no other figure is published",
    )
    rail_links: Fraction = described(
        2,
        "links",
        _LINKS,
        part="links",
        meaning="IPU-Links from a rung to the next, on each rail",
        source=f"{_UTIL}: numUpLinks and numDownLinks",
        evidence="no other figure is published",
    )
    gateway_link_bytes_per_s: Fraction = described(
        Fraction(100 * 10**9, 8),
        "bytes/s",
        _LINK_RATE,
        part="links",
        meaning="one GW-Link in one direction",
        source="Graphcore, Switched GW-Links in large scale Bow Pod systems: 100 Gbit/s",
        evidence="no measurement is published",
    )
    gateway_links: Fraction = described(
        1,
        "links",
        _LINKS,
        part="links",
        meaning="GW-Links of a machine to each side; two pods alone have both between them",
        source="Graphcore, Switched GW-Links in large scale Bow Pod systems",
        evidence="the two ports of a machine are certain",
    )
    hop_latency_ns: Fraction = described(
        15,
        "ns",
        _SECOND_NS,
        part="links",
        meaning="a signal over one hop between IPUs; that data needs the same is assumed",
        source=f"{_UTIL}: syncLatencyPerHop; S. Knowles, Hot Chips 33",
        evidence="both sources give the same figure",
    )
    gateway_latency_ns: Fraction = described(
        2000,
        "ns",
        _SECOND_NS,
        part="links",
        meaning="a signal from an IPU over two machines' gateways to one in another pod",
        source="assumed",
        evidence="no measurement is published",
    )
    sync_skew_cycles: Fraction = described(
        250,
        "cycles",
        (0, 10**6),
        part="links",
        meaning="what a sync of several IPUs takes beyond the signal among them and the sync of their own tiles",
        source=f"derived from {_STENCIL}: 640 cycles on 16 IPUs, float, less 240 of signal and 150 of tiles; the same "
        "cycles are assumed for other numbers of IPUs, GC200 and Bow",
        plausible=(501 - 390, 642 - 390),
        evidence="the same: 501 to 642 cycles by type of number",
    )
    pre_copy_cycles: Fraction = described(
        1894,
        "cycles",
        (0, 10**6),
        part="links",
        meaning="tiles lay out what they send to other IPUs, before a global exchange",
        source=f"{_STENCIL}: 16 IPUs, float; code of the tiles, so that the same cycles are assumed for GC200 and Bow",
        plausible=(1611, 1897),
        evidence="the same, by type of number",
    )
    pair_exchange_ns: Fraction = described(
        1350,
        "ns",
        _SECOND_NS,
        part="links",
        meaning="fixed time of a global exchange between 2 IPUs, beside the bytes on the links and their hops",
        source=f"derived from {_STENCIL}: 3.70 us more than on one IPU with a halo of 16,000 bytes, less its transfer "
        "and the other parts; the same in seconds is assumed for GC200 and Bow",
        plausible=(1350, 1740),
        evidence="the same: 3.64 us with a halo of 8,000 bytes, half4, less the parts of that type",
    )
    beyond_pair_exchange_ns: Fraction = described(
        2400,
        "ns",
        _SECOND_NS,
        part="links",
        meaning="the same in a larger device",
        source=f"derived from {_STENCIL}: 5.04, 5.08 and 5.16 us on 4, 8 and 16 IPUs, float, less the same; the same "
        "in seconds is assumed for GC200 and Bow",
        plausible=(1900, 2530),
        evidence="the same: 3043 to 4048 cycles of global exchange on 16 IPUs by type of number",
    )
    post_copy_cycles: Fraction = described(
        954,
        "cycles",
        (0, 10**6),
        part="links",
        meaning="tiles put away what they have received from other IPUs, behind a global exchange",
        source=f"{_STENCIL}: 16 IPUs, float; code of the tiles, so that the same cycles are assumed for GC200 and Bow",
        plausible=(882, 954),
        evidence="the same, by type of number",
    )

    session_run_ns: Fraction = described(
        1_200_000,
        "ns",
        _SECOND_NS,
        part="host",
        meaning="what a framework's host does between two session runs, whatever the program",
        source="between the two measurements: 0.7 ms of a PopXL tutorial (0.80 ms a run, less what is simulated) and "
        "1.8 ms of Keras (2 ms a step of one run each, less 0.2 of a step among 937)",
        plausible=(700_000, 1_800_000),
        evidence="Graphcore's tutorials popxl/5_remote_variables_and_rts and tensorflow2/keras",
    )
    offchip_state_ns: Fraction = described(
        313,
        "ns",
        _HOST_NS,
        part="host",
        meaning="for each kilobyte of the model's weights, of a weight update whose optimizer state lies off chip, "
        "beside its streams",
        source=_PODS,
        plausible=(50, 700),
        evidence="pairs of pods of BERT in PopART and TensorFlow leave 0 to 0.35 s for 0.67 GB; MLPerf's rows with the "
        "state off chip 0.23 and 0.28 s, on chip 0.03 s",
    )
    pytorch_offchip_state_ns: Fraction = described(
        979,
        "ns",
        _HOST_NS,
        part="host",
        meaning="the same of a PyTorch program",
        source=_PODS,
        plausible=(300, 2200),
        evidence="BERT in PyTorch leaves 0.6 to 0.8 s for 0.67 GB, GPT-2 with its layers' own error 0.5 s for 0.25 GB",
    )

    file: str = field(default="", compare=False, kw_only=True)
    __hash__ = HashedOnce.__hash__  # else a dataclass makes its own

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for rate in RATES:
            value: Fraction = getattr(self, rate.attribute)
            if not rate.least <= value <= rate.most:
                least, most = f"{float(rate.least):g}", f"{float(rate.most):g}"
                raise QuantityError(
                    f"rates: expected {rate.attribute} from {least} to {most} {rate.unit}, got {float(value):g}"
                )

    def exchange_ns(self, ipus: int) -> Fraction:
        """Return the fixed time of a global exchange in a device of ``ipus`` IPUs, 2 or more."""
        return self.pair_exchange_ns if ipus == 2 else self.beyond_pair_exchange_ns

    def offchip_ns(self, framework: str) -> Fraction:
        """Return the time of a framework's host for a kilobyte of weights whose optimizer state lies off chip."""
        return self.pytorch_offchip_state_ns if framework == "pytorch" else self.offchip_state_ns

    def with_values(self, **values: Fraction) -> Rates:
        """Return these rates with some replaced, by attribute name. Raises QuantityError for a name that is none."""
        known = [rate.attribute for rate in RATES]
        for name in values:
            if name not in known:
                hint = did_you_mean(name, known)
                raise QuantityError(f"unknown rate {name!r}: expected one of {listed([*known], name)}{hint}")
        exact: dict[str, Any] = {name: Fraction(value) for name, value in values.items()}
        return replace(self, **exact)

    def chosen(self) -> tuple[Rate, ...]:
        """Return the rates whose values are not the defaults."""
        return tuple(rate for rate in RATES if getattr(self, rate.attribute) != rate.default)

    def source_of(self, rate: Rate) -> str:
        """Return where the value in use is from."""
        return (self.file or "chosen by the user") if rate in self.chosen() else rate.source


#: Every rate, in the order in which tables show them.
RATES: Final = tuple(Rate(attribute=each.name, **each.metadata) for each in fields(Rates) if each.metadata)
#: The rates in use when none is chosen.
DEFAULT_RATES: Final = Rates()
