"""Price copies between IPUs again after routes change, when a cable dies or a spare replaces an IPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ipusim.hardware.disturbances import Dead
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.resources import Resource
from ipusim.hardware.system import System
from ipusim.machine.disturbances import cable
from ipusim.machine.run_changes import IpuMove, Skip, swap_ipus
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs, Send, StepCopy
from ipusim.pricing.price import price_plan


@dataclass(frozen=True)
class Rerouted:
    """The routes from a cycle on.

    Attributes:
        cycle: cycle in which a cable dies or an IPU is replaced.
        dead: numbers of the dead cable's link directions.
        system: the device after the change.
        copies_by_group: merged copies, like ``copies.by_group`` of Costs.
        sends: sends, like in Costs.
        moves: moves of activations, like in Costs.
    """

    cycle: int
    dead: frozenset[int]
    system: System
    copies_by_group: tuple[tuple[StepCopy, ...], ...]
    sends: dict[tuple[int, int, int, int], Send]
    moves: dict[tuple[int, int, int, int], Send]


def rerouted(plan: Plan, program: PipelineProgram, system: System, costs: Costs) -> tuple[Costs, tuple[Rerouted, ...]]:
    """Return costs that number all links ever in use, and the changes of routes."""
    route_changes = [
        change
        for change in system.disturbances
        if isinstance(change, IpuMove) or (isinstance(change, Dead) and change.later)
    ]
    links = {direction: number for number, direction in enumerate(costs.links)}
    changes, device = [], system
    for change in sorted(route_changes, key=lambda change: change.from_):
        if isinstance(change, IpuMove):
            device = swap_ipus(device, change)
        else:
            device = replace(device, topology=device.topology.drop([system.cable(change.link)]))
        new_costs = price_plan(plan, program, device)
        number = [links.setdefault(direction, len(links)) for direction in new_costs.links]
        number_by_resource = {Resource("link", direction.label): links[direction] for direction in links}
        dead = frozenset() if isinstance(change, IpuMove) else cable(system, change.link)
        dead_links = frozenset(number_by_resource[link] for link in dead & number_by_resource.keys())
        copies_by_group = tuple(
            tuple(_renumber(copy, number) for copy in copies) for copies in new_costs.copies.by_group
        )
        sends, moves = (
            {key: send._replace(links=tuple(number[link] for link in send.links)) for key, send in table.items()}
            for table in (new_costs.sends, new_costs.moves)
        )
        changes.append(Rerouted(_cycle_of_run(change.from_, system), dead_links, device, copies_by_group, sends, moves))
    return replace(costs, links=tuple[LinkDirection, ...](links)), tuple(changes)


def _cycle_of_run(cycle: int, system: System) -> int:
    """Return the cycle in which a run with skips reaches the original ``cycle``."""
    for skip in system.disturbances:
        if isinstance(skip, Skip) and skip.cycle <= cycle - skip.cycles:
            cycle -= skip.cycles
    return cycle


def _renumber(copy: StepCopy, number: list[int]) -> StepCopy:
    return replace(copy, links=tuple(replace(share, link=number[share.link]) for share in copy.links))
