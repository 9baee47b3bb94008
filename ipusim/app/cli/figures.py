"""Hardware figures and rates as tables, with the value and the source of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction

from ipusim.api import Machine, Rates, hardware
from ipusim.app.render.tables import Table
from ipusim.base.units import format_bytes, format_rate, format_seconds

_HEADER = ("figure", "value", "source")


def machine_tables(machine: Machine) -> Iterator[Table]:
    """Yield every figure that a machine is simulated by: of its IPUs, links, host and memory, and all rates."""
    yield Table(machine.name, ("", ""), (("machine", machine.description), ("links", machine.source)))
    yield _figures(f"Figures of {machine.ipu.name}", machine.ipu)
    yield _figures("Figures of the host, for each IPU", machine.host)
    if machine.streaming is not None:
        yield _figures("Figures of the Streaming Memory of every four IPUs", machine.streaming)
    yield rate_table(hardware.DEFAULT_RATES)
    rows = ((rate.name, rate.source, _range(rate.plausible_text(), rate.evidence)) for rate in hardware.RATES)
    yield Table("Sources of the rates", ("rate", "source", "plausible, and why"), tuple(rows))


def rate_table(rates: Rates, only: Collection[str] | None = None) -> Table:
    """Return name, value and meaning of all rates, or of those whose attributes are in ``only``."""
    rows = tuple(
        (rate.name, rate.show(getattr(rates, rate.attribute)), rate.meaning)
        for rate in hardware.RATES
        if only is None or rate.attribute in only
    )
    return Table("Rates", ("rate", "value", "meaning"), rows)


def figure_rows(
    spec: hardware.IpuSpec | hardware.HostSpec | hardware.StreamingMemory,
) -> dict[str, tuple[str, str, str]]:
    """Return name, value and source of each figure, by its attribute."""
    sources: Mapping[str, str] = spec.sources
    return {name: (name, _value(name, getattr(spec, name)), source) for name, source in sources.items()}


def _figures(title: str, spec: hardware.IpuSpec | hardware.HostSpec | hardware.StreamingMemory) -> Table:
    return Table(title, _HEADER, tuple(figure_rows(spec).values()))


def _value(name: str, value: int | Fraction) -> str:
    """Return a figure for people; the name of a quantity says its unit."""
    if name.endswith("_bytes_per_s") or name == "bytes_per_s":
        return format_rate(float(value))
    if name == "sram_bytes_per_tile":
        return format_bytes(int(value))
    if name.endswith("_ns"):
        return format_seconds(float(value) / 10**9)
    return f"{int(value):,}"


def _range(plausible: str, evidence: str) -> str:
    return f"{plausible}: {evidence}" if plausible else evidence
