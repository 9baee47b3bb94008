"""List the rates: constants that convert work, bytes and meetings to time, with unit, source and range.

Figures of a chip, its host and its memory are defined next to their classes (:mod:`ipusim.hardware.generations`,
:mod:`ipusim.hardware.host`, :mod:`ipusim.hardware.streaming`). Rates are the remaining constants, such as the share of
nominal speed reached by links and products. Unlike constants in code, rates can be named in a scenario, varied, fitted
and printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Final

from ipusim.base.errors import QuantityError
from ipusim.base.near_names import did_you_mean, list_names
from ipusim.hardware.computation_rates import ComputationRates
from ipusim.hardware.rate import PODS, SHARE, Rate, describe

_UTIL: Final = "PopLibs lib/poplibs_test/Util.cpp"
_STENCIL: Final = "T. Louw's stencil experiments on GC2 (lbm-graphcore, gaussian-blur-scaling)"
_link: Final = partial(describe, part="links")
_link_cycles: Final = partial(_link, unit="cycles", bounds=(0, 10**6))
_link_ns: Final = partial(_link, unit="ns", bounds=(0, 10**9))
_link_rate: Final = partial(_link, unit="bytes/s", bounds=(10**6, 10**14))
_links: Final = partial(_link, unit="links", bounds=(1, 10))
_host_ns: Final = partial(describe, unit="ns", bounds=(0, 10**9), part="host")
_offchip_ns: Final = partial(_host_ns, bounds=(0, 100 * 10**9))


@dataclass(frozen=True)
class Rates(ComputationRates):
    """Values of the rates; :data:`RATES` describes them.

    Attributes:
        file: file of the chosen rates; empty for rates stated in a scenario.

    Raises:
        QuantityError: for a rate out of bounds.

    Example:
        >>> from fractions import Fraction
        >>> from ipusim.api import Rates
        >>> Rates(hop_latency_ns=Fraction(20)).hop_latency_ns
        Fraction(20, 1)
    """

    link_bytes_per_s: Fraction = _link_rate(
        Fraction(128 * 2**30, 8),
        meaning="rate of one IPU-Link in one direction",
        source=f"{_UTIL}: linkBandwidth, 128 Gibit/s",
        plausible=(16 * 10**9, Fraction(128 * 2**30, 8)),
        evidence="Graphcore's C600 datasheet: 64 GB/s each way over 4 links",
    )
    link_efficiency: Fraction = _link(
        Fraction(85, 100),
        unit="of nominal",
        bounds=SHARE,
        meaning="share of a link's nominal rate that its protocol leaves for data; assumed for GW-Links",
        source=f"{_UTIL}: linkEfficiency",
        plausible=("0.83", "0.85"),
        evidence="Graphcore's gc-iputraffictest on an M2000: 26.5 GB/s each way, if the traffic uses 2 links",
    )
    rung_links: Fraction = _links(
        4,
        meaning="IPU-Links of a C2 card, a rung, for traffic between the two IPUs of the card",
        source=f"{_UTIL}: numIntraIpuLinks",
        plausible=(4, 6),
        evidence="PopLibs of 2016 and Graphcore's glossary count all 6 links of a card",
    )
    machine_rung_bytes_per_s: Fraction = _link_rate(
        Fraction(423_312_076_496, 8 * 2),
        meaning="rate of a rung of an IPU-Machine in one direction, for traffic between the two IPUs of the rung",
        source="measured: Graphcore's gc-iputraffictest, devices 2 and 3 of an M2000, 423.3 Gbit/s both ways together; "
        "Bow-2000 assumed alike",
        plausible=(Fraction(423_312_076_496, 8 * 2), Fraction(128 * 2**30 * 6 * 85, 8 * 100)),
        evidence="the test moves 64 kB 1000 times from each of 32 tiles, and does not say over how many links: 2 links "
        "at 83 % of 16 GB/s would explain the rate, and the BMC user guide lists 6 links per pair",
    )
    rung_crossing_links: Fraction = _links(
        2,
        meaning="IPU-Links of a rung for traffic to another rung",
        source=f"{_UTIL}: numCrossRoutingLinks",
        evidence="no other figure is published",
    )
    rail_links: Fraction = _links(
        2,
        meaning="IPU-Links from a rung to the next rung, on each rail",
        source=f"{_UTIL}: numUpLinks and numDownLinks",
        evidence="no other figure is published",
    )
    gateway_link_bytes_per_s: Fraction = _link_rate(
        Fraction(100 * 10**9, 8),
        meaning="rate of one GW-Link in one direction",
        source="Graphcore, Switched GW-Links in large scale Bow Pod systems: 100 Gbit/s",
        evidence="no measurement is published",
    )
    gateway_links: Fraction = _links(
        1,
        meaning="GW-Links of a machine to each side; with only two pods, both sides lead to the other pod",
        source="Graphcore, Switched GW-Links in large scale Bow Pod systems",
        evidence="only the two ports of a machine are documented",
    )
    hop_latency_ns: Fraction = _link_ns(
        15,
        meaning="latency of a signal over one hop between IPUs; the same latency is assumed for data",
        source=f"{_UTIL}: syncLatencyPerHop; S. Knowles, Hot Chips 33",
        evidence="both sources give the same figure",
    )
    gateway_latency_ns: Fraction = _link_ns(
        2000,
        meaning="latency of a signal from an IPU over two machines' gateways to an IPU in another pod",
        source="assumed",
        evidence="no measurement is published",
    )
    sync_skew_cycles: Fraction = _link_cycles(
        250,
        meaning="cycles of a sync of several IPUs, in addition to the signal between the IPUs and the sync of the "
        "tiles on each IPU",
        source=f"derived from {_STENCIL}: 640 cycles on 16 IPUs, float, less 240 of signal and 150 of tiles; the same "
        "cycles are assumed for other numbers of IPUs, GC200 and Bow",
        plausible=(501 - 390, 642 - 390),
        evidence="stencil experiments: 501 to 642 cycles by type of number",
    )
    pre_copy_cycles: Fraction = _link_cycles(
        1894,
        meaning="cycles of the tiles to arrange data for other IPUs before a global exchange",
        source=f"{_STENCIL}: 16 IPUs, float; code of the tiles, so that the same cycles are assumed for GC200 and Bow",
        plausible=(1611, 1897),
        evidence="stencil experiments, by type of number",
    )
    pair_exchange_ns: Fraction = _link_ns(
        1350,
        meaning="fixed time of a global exchange between 2 IPUs, in addition to the bytes on the links and their hops",
        source=f"derived from {_STENCIL}: 3.70 us more than on one IPU with a halo of 16,000 bytes, less its transfer "
        "and the other parts; the same in seconds is assumed for GC200 and Bow",
        plausible=(1350, 1740),
        evidence="stencil experiments: 3.64 us with a halo of 8,000 bytes, half4, less the parts of that type",
    )
    beyond_pair_exchange_ns: Fraction = _link_ns(
        2400,
        meaning="fixed time of a global exchange in a device of more IPUs, in addition to the bytes on the links and "
        "their hops",
        source=f"derived from {_STENCIL}: 5.04, 5.08 and 5.16 us on 4, 8 and 16 IPUs, float, less the transfer and the "
        "other parts; the same in seconds is assumed for GC200 and Bow",
        plausible=(1900, 2530),
        evidence="stencil experiments: 3043 to 4048 cycles of global exchange on 16 IPUs by type of number",
    )
    post_copy_cycles: Fraction = _link_cycles(
        954,
        meaning="cycles of the tiles to store data from other IPUs after a global exchange",
        source=f"{_STENCIL}: 16 IPUs, float; code of the tiles, so that the same cycles are assumed for GC200 and Bow",
        plausible=(882, 954),
        evidence="stencil experiments, by type of number",
    )

    session_run_ns: Fraction = _host_ns(
        1_200_000,
        meaning="time of a framework's host between two session runs, for any program",
        source="between the two measurements: 0.7 ms of a PopXL tutorial (0.80 ms a run, less what is simulated) and "
        "1.8 ms of Keras (2 ms for a step in a session run of its own, less 0.2 ms for a step in a run of 937 steps)",
        plausible=(700_000, 1_800_000),
        evidence="Graphcore's tutorials popxl/5_remote_variables_and_rts and tensorflow2/keras",
    )
    optimizer_value_ns: Fraction = _host_ns(
        352_000,
        meaning="host time for each variable of a session run, if the program sends its optimizer's values again "
        "after the run; also any other host time for each variable of a session run; not in a PyTorch program",
        source=PODS,
        plausible=(0, 700_000),
        evidence="PopART streams each value separately, in a separate program, which takes at most the least time of "
        "a session run; MLPerf's measured times of BERT with state on chip exceed the other simulated times by 0.06 to "
        "0.15 s for 393 variables",
    )
    pytorch_optimizer_value_ns: Fraction = _host_ns(
        82_000,
        meaning="host time for each value of the optimizer, such as a learning rate, that a PyTorch program sends for "
        "each variable after a session run",
        source=PODS,
        plausible=(0, 150_000),
        evidence="Graphcore's PopART and PyTorch train SQuAD alike, but only PyTorch's figures include this time: 75 "
        "to 85 ms for 1,170 values",
    )
    offchip_stream_ns: Fraction = _offchip_ns(
        42,
        meaning="time for each kilobyte of off-chip optimizer state that a machine's IPUs load or store at a weight "
        "update, in addition to the streams; counts the whole state, or the replicas' parts if replicas share the "
        "state",
        source="remote memory 3 to 20 times slower than IPU-Links (Graphcore's popxl-addons, examples/mnist, "
        "4_Remote_Variables), which move 26.5 GB/s: 7.7 times, the geometric mean, for a machine's four IPUs at once, "
        "less the streams",
        plausible=(0, 158),
        evidence="3 and 20 times slower, by the same source; a fit that includes the published times of BERT gives 109",
    )
    offchip_state_ns: Fraction = _offchip_ns(
        0,
        meaning="time for each kilobyte of the model's weights at a weight update with off-chip optimizer state, for "
        "any streamed part of the state; not in a PyTorch program",
        source="assumed: no time beside offchip_stream and optimizer_value; a fit to published times of BERT improves "
        "few of them",
        plausible=(0, 520),
        evidence="published times of BERT in PopART and TensorFlow, compared between two pod sizes, exceed the other "
        "simulated times by 0 to 0.35 s for 0.67 GB; a fit gives 124 ns",
    )
    pytorch_offchip_state_ns: Fraction = _offchip_ns(
        570,
        meaning="time for each kilobyte of the model's weights at a weight update with off-chip optimizer state, in a "
        "PyTorch program",
        source=PODS,
        plausible=(100, 1900),
        evidence="published times of BERT in PyTorch exceed the other simulated times, with the optimizer's values, by "
        "0.4 to 0.6 s for 0.67 GB; those of GPT-2 by 0.4 s for 0.25 GB, including the error of its layers",
    )

    file: str = field(default="", compare=False, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse senseless values."""
        for rate in RATES:
            value: Fraction = getattr(self, rate.attribute)
            if not rate.least <= value <= rate.most:
                bounds = f"{float(rate.least):g} to {float(rate.most):g}"
                raise QuantityError(f"rates: expected {rate.attribute} from {bounds} {rate.unit}, got {float(value):g}")

    def __hash__(self) -> int:
        """Return the hash of the values, used to look up prices."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, rate.attribute) for rate in RATES))

    def exchange_ns(self, ipus: int) -> Fraction:
        """Return the fixed time of a global exchange.

        Args:
            ipus: number of IPUs in the device, 2 or more.

        Returns:
            Nanoseconds.
        """
        return self.pair_exchange_ns if ipus == 2 else self.beyond_pair_exchange_ns

    def offchip_state_time_ns(self, framework: str, weight_bytes: int, streamed_bytes: int) -> Fraction:
        """Return the time that off-chip optimizer state adds to a weight update, besides its transfers.

        Args:
            framework: framework such as ``pytorch``; empty for none.
            weight_bytes: bytes of the model's weights with off-chip optimizer state.
            streamed_bytes: bytes of that state, loaded and stored by the IPUs of the machine that moves most.

        Returns:
            Nanoseconds.
        """
        by_weights = self.pytorch_offchip_state_ns if framework == "pytorch" else self.offchip_state_ns
        return (by_weights * weight_bytes + self.offchip_stream_ns * streamed_bytes) / 1000

    def with_values(self, **values: Fraction) -> Rates:
        """Return these rates with some replaced.

        Args:
            **values: new values by attribute name, in the rate's unit.

        Returns:
            The new rates; other rates stay unchanged.

        Raises:
            QuantityError: for an unknown name.
        """
        names = [rate.attribute for rate in RATES]
        for name in values:
            if name not in names:
                hint = did_you_mean(name, names)
                raise QuantityError(f"unknown rate {name!r}: expected one of {list_names([*names], name)}{hint}")
        exact: dict[str, Any] = {name: Fraction(value) for name, value in values.items()}
        return replace(self, **exact)

    def changed_rates(self) -> tuple[Rate, ...]:
        """Return the rates with values other than the defaults."""
        return tuple(rate for rate in RATES if getattr(self, rate.attribute) != rate.default)

    #: Former name, kept for one release.
    chosen = changed_rates

    def source_of(self, rate: Rate) -> str:
        """Return the used value's origin.

        Args:
            rate: one of :data:`ipusim.hardware.rates.RATES`.

        Returns:
            Source of the default value; for another value, a remark on the user's choice or the file.
        """
        return (self.file or "chosen by the user") if rate in self.changed_rates() else rate.source


#: The rates, in table order.
RATES: Final = tuple(Rate(attribute=field.name, **field.metadata) for field in fields(Rates) if field.metadata)
#: Default rates.
DEFAULT_RATES: Final = Rates()
