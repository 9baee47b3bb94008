"""Make tables of hardware figures and rates with sources, and tables of a pipeline's costs.

Figures are published properties of a device, such as the bytes of SRAM per tile; rates are the adjustable speeds and
latencies of the cost model. A cost is a sum of terms; a law is the formula of a kind of term.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Final

from ipusim.api import Costs, Machine, PipelineProgram, Plan, Rates, System, hardware, pricing
from ipusim.app.render.tables import Table
from ipusim.base.units import format_bytes, format_rate, format_seconds

_HEADER: Final = ("figure", "value", "source")
#: Maximum number of addends of a formula in a table.
_MOST_ADDENDS: Final = 3


def machine_tables(machine: Machine) -> Iterator[Table]:
    """Yield all figures of a machine's simulation: IPUs, links, host, memory, and rates."""
    yield Table(machine.name, ("", ""), (("machine", machine.description), ("links", machine.source)))
    yield _figures(f"Figures of {machine.ipu.name}", machine.ipu)
    yield _figures("Figures of the host, for each IPU", machine.host)
    if machine.streaming is not None:
        yield _figures("Figures of the Streaming Memory of every four IPUs", machine.streaming)
    yield rate_table(hardware.DEFAULT_RATES)
    rows = (
        (rate.name, rate.source, ": ".join(filter(None, [rate.plausible_text(), rate.evidence])))
        for rate in hardware.RATES
    )
    yield Table("Sources of the rates", ("rate", "source", "plausible, and why"), tuple(rows))


def rate_table(rates: Rates, names: Collection[str] | None = None) -> Table:
    """Return name, value and meaning of all rates, or of the rates with the attributes ``names`` of :class:`Rates`."""
    rows = tuple(
        (rate.name, rate.show(getattr(rates, rate.attribute)), rate.meaning)
        for rate in hardware.RATES
        if names is None or rate.attribute in names
    )
    return Table("Rates", ("rate", "value", "meaning"), rows)


def figure_rows(
    spec: hardware.IpuSpec | hardware.HostSpec | hardware.StreamingMemory,
) -> dict[str, tuple[str, str, str]]:
    """Return every figure's name, value and source by attribute."""
    sources: Mapping[str, str] = spec.sources
    return {name: (name, _value(name, getattr(spec, name)), source) for name, source in sources.items()}


def _figures(title: str, spec: hardware.IpuSpec | hardware.HostSpec | hardware.StreamingMemory) -> Table:
    return Table(title, _HEADER, tuple(figure_rows(spec).values()))


def _value(name: str, value: int | Fraction) -> str:
    """Return a figure as text; the end of its name determines the unit."""
    if name.endswith("_bytes_per_s") or name == "bytes_per_s":
        return format_rate(float(value))
    if name == "sram_bytes_per_tile":
        return format_bytes(int(value))
    if name.endswith("_ns"):
        return format_seconds(float(value) / 10**9)
    return f"{int(value):,}"


def cost_tables(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> Iterator[Table]:
    """Yield tables: terms of ``costs``, laws, rates, and figures with sources."""
    terms = pricing.terms_of(costs, plan, program, system)
    previous_labels = ("", *(term.label for term in terms))
    rows = tuple(
        (term.label if term.label != previous else "", term.law.name, f"{term.cycles:,}", term.formula(_MOST_ADDENDS))
        for term, previous in zip(terms, previous_labels, strict=False)
    )
    yield Table("Costs", ("of", "term", "cycles", "formula, rounded up"), rows)
    laws = tuple(dict.fromkeys(term.law for term in terms))
    yield Table("Formulas", ("term", "formula", "source"), tuple((law.name, law.formula, law.source) for law in laws))
    rate_names = {name for law in laws for name in law.rates} - _unused_rates(system)
    if rate_names:
        yield rate_table(system.rates, rate_names)
        sources = ((rate.name, system.rates.source_of(rate)) for rate in hardware.RATES if rate.attribute in rate_names)
        yield Table("Sources of the rates", ("rate", "source"), tuple(sources))
    figure_cells = figure_rows(system.ipu) | figure_rows(system.host)
    figure_cells |= figure_rows(system.streaming) if system.streaming else {}
    figures = dict.fromkeys(name for law in laws for name in law.figures)
    if figures:
        yield Table("Figures", ("figure", "value", "source"), tuple(figure_cells[name] for name in figures))


def _unused_rates(system: System) -> set[str]:
    """Return the attributes of rates that no cost on ``system`` uses: rates for other devices or frameworks."""
    unused_exchange = "beyond_pair_exchange_ns" if system.count == 2 else "pair_exchange_ns"
    # the channel of a rung is "rung" on a C2 card, and "machine rung" in an IPU-Machine
    unused_rung = "machine_rung_bytes_per_s" if system.topology.rung == "rung" else "rung_links"
    gateways = {rate.attribute for rate in hardware.RATES if rate.attribute.startswith("gateway")}
    unused_prefix = "" if system.framework == "pytorch" else "pytorch_"
    values = {"optimizer_value_ns", "pytorch_optimizer_value_ns"}
    if system.optimizer_interval:
        values = {f"{unused_prefix}optimizer_value_ns"}
    unused = {unused_exchange, unused_rung, f"{unused_prefix}offchip_state_ns"}
    return unused | values | (gateways if system.pods == 1 else set())
