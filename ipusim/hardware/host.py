"""Define the host of IPUs: rates and latencies of feeds and of the network between hosts, with sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Final

from ipusim.base.errors import DeviceError, QuantityError
from ipusim.base.near_names import did_you_mean
from ipusim.hardware.sourced import sourced


@dataclass(frozen=True)
class HostSpec:
    """Rates between an IPU and its host, and rates of the host.

    Attributes:
        infeed_bytes_per_s: IPU's read rate from the host's buffer.
        host_fill_bytes_per_s: host's write rate into the buffer (prefetch).
        outfeed_bytes_per_s: IPU's write rate to the host's buffer.
        host_drain_bytes_per_s: host's read rate from the buffer.
        network_bytes_per_s: rate of a host sending to another host, while receiving at the same rate.
        operations_per_s: arithmetic rate of the host, for stages with host calls.
        operation_ns: start-up time of a host operation.
        sync_ns: synchronisation time between an IPU and the host.
        network_ns: latency between two hosts, for zero bytes.
        sources: origin of every figure, or ``assumed``.
        data_rate_bytes_per_s: host's production rate of samples, for the infeeds of several replicas; None if
            unlimited.

    Raises QuantityError for a rate not above zero, or a negative time.
    """

    infeed_bytes_per_s: Fraction
    host_fill_bytes_per_s: Fraction
    outfeed_bytes_per_s: Fraction
    host_drain_bytes_per_s: Fraction
    network_bytes_per_s: Fraction
    operations_per_s: Fraction
    operation_ns: Fraction
    sync_ns: Fraction
    network_ns: Fraction
    sources: Mapping[str, str] = field(repr=False, hash=False)
    data_rate_bytes_per_s: Fraction | None = None

    def __post_init__(self) -> None:
        """Refuse rates that would never finish."""
        for name in RATES:
            rate: Fraction | None = getattr(self, name)
            if rate is not None and rate <= 0:
                raise QuantityError(f"host: expected {name} above 0 bytes/s, got {rate}")
        if self.operations_per_s <= 0:
            raise QuantityError(f"host: expected operations_per_s above 0, got {self.operations_per_s}")
        for name in ("operation_ns", "sync_ns", "network_ns"):
            if getattr(self, name) < 0:
                raise QuantityError(f"host: expected {name} from 0 up, got {getattr(self, name)}")

    def with_rates(self, bytes_per_s: Mapping[str, Fraction]) -> HostSpec:
        """Return this host with some rates replaced; keys are names of :data:`RATES`.

        Raises DeviceError for an unknown rate name, QuantityError for a rate not above zero.
        """
        for name in bytes_per_s:
            if name not in RATES:
                hint = did_you_mean(name, RATES)
                raise DeviceError(f"unknown host rate {name!r}: expected one of {', '.join(RATES)}{hint}")
        sources = dict.fromkeys(bytes_per_s, "chosen by the user")
        rates = {name: Fraction(rate) for name, rate in bytes_per_s.items()}
        return replace(self, **rates, sources={**self.sources, **sources})


#: A HostSpec's rates, by attribute name.
RATES: Final = tuple(field.name for field in fields(HostSpec) if field.name.endswith("_bytes_per_s"))

#: Source of the host's arithmetic rate for host calls.
_CORE: Final = (
    "assumed: one core with 8 float32 operations per cycle at 2.25 GHz, in the dual EPYC 7742 that Graphcore's build "
    "and test guide of IPU-POD DA systems recommends"
)
_TRAFFIC_TEST: Final = "sample output of Graphcore's gc-hosttraffictest on one IPU of an M2000 (256-byte blocks)"

#: Host of an M2000. Its rates are lower bounds, because they were measured with small blocks and with contention on
#: both sides.
M2000_HOST: Final = sourced(
    HostSpec,
    infeed_bytes_per_s=(Fraction(3_300_000_000), f"{_TRAFFIC_TEST}: tiles read 26.4 Gbit/s"),
    host_fill_bytes_per_s=(Fraction(7_060_000_000), f"{_TRAFFIC_TEST}: host writes 56.5 Gbit/s"),
    outfeed_bytes_per_s=(Fraction(3_760_000_000), f"{_TRAFFIC_TEST}: tiles write 30.0 Gbit/s"),
    host_drain_bytes_per_s=(Fraction(2_930_000_000), f"{_TRAFFIC_TEST}: host reads 23.5 Gbit/s"),
    network_bytes_per_s=(Fraction(100 * 10**9, 8), "an M2000's 100 GbE RoCE port, at its nominal rate (assumed)"),
    operations_per_s=(Fraction(2_250_000_000 * 8), _CORE),
    operation_ns=(Fraction(1_000), "assumed: a call of a library such as NumPy on a small array"),
    network_ns=(Fraction(10_000), "assumed: a message between two hosts, software included"),
    # 4095 syncs in 1485 us, with 160 cycles of unrelated delay per sync
    sync_ns=(
        Fraction(1_485_000, 4095) - Fraction(160 * 10**9, 1_330_000_000),
        "derived from the sample output of Graphcore's gc-hostsynclatencytest, at an assumed 1.33 GHz",
    ),
)

#: Host of machines without published figures, with the figures of an M2000.
ASSUMED_HOST: Final = replace(M2000_HOST, sources=dict.fromkeys(M2000_HOST.sources, "assumed as on an M2000"))
