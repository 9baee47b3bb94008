"""What a scenario's pipeline costs, term by term: cycles, formula with its numbers, and where all of it is from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ipusim.api import Costs, PipelineProgram, Plan, System, hardware, pricing
from ipusim.app.cli.figures import figure_rows, rate_table
from ipusim.app.render.tables import Table

#: Addends of a formula that a table shows before it says how many more there are.
_MOST_ADDENDS: Final = 3


def cost_tables(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> Iterator[Table]:
    """Yield the terms of ``costs``, then the laws, rates and figures that they came from, each with its source."""
    priced = pricing.terms_of(costs, plan, program, system)
    before = ("", *(term.of for term in priced))
    rows = tuple(
        (term.of if term.of != last else "", term.law.name, f"{term.cycles:,}", term.formula(_MOST_ADDENDS))
        for term, last in zip(priced, before, strict=False)
    )
    yield Table("Costs", ("of", "term", "cycles", "formula, rounded up"), rows)
    laws = tuple(dict.fromkeys(term.law for term in priced))
    yield Table("Formulas", ("term", "formula", "source"), tuple((law.name, law.formula, law.source) for law in laws))
    used = {name for law in laws for name in law.rates} - _of_other_devices(system)
    if used:
        yield rate_table(system.rates, used)
        sources = ((rate.name, system.rates.source_of(rate)) for rate in hardware.RATES if rate.attribute in used)
        yield Table("Sources of the rates", ("rate", "source"), tuple(sources))
    known = figure_rows(system.ipu) | figure_rows(system.host)
    known |= figure_rows(system.streaming) if system.streaming else {}
    figures = dict.fromkeys(name for law in laws for name in law.figures)
    if figures:
        yield Table("Figures", ("figure", "value", "source"), tuple(known[name] for name in figures))


def _of_other_devices(system: System) -> set[str]:
    """Return the rates that no copy on ``system`` needs."""
    exchange = "beyond_pair_exchange_ns" if system.count == 2 else "pair_exchange_ns"
    rung = "machine_rung_bytes_per_s" if system.topology.rung == "rung" else "rung_links"
    gateways = {rate.attribute for rate in hardware.RATES if rate.attribute.startswith("gateway")}
    state = "offchip_state_ns" if system.framework == "pytorch" else "pytorch_offchip_state_ns"
    values = set() if system.updates_optimizer else {"optimizer_value_ns"}
    return {exchange, rung, state} | values | (gateways if system.pods == 1 else set())
