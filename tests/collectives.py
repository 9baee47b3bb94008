"""Collectives as tests see them: whether a plan computes what it says, for whom it is, what it costs alone.

What a plan computes is found by following every element and not by knowing the algorithm.

Buffers are cut wherever any transfer begins or ends, and each piece carries the
list of who put what into it. Nothing here looks at how a plan was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ipusim.base.errors import DeviceError, PlanError
from ipusim.hardware.collectives.collective import Collective
from ipusim.hardware.collectives.cost import CollectiveCost, concurrent_cost
from ipusim.hardware.system import System

#: What a piece of a buffer holds: how often the piece at a place of a participant's first buffer is in it.
Content = Counter[tuple[int, int]]


def check_collective(collective: Collective) -> None:
    """Raise PlanError, naming round, transfer or IPU, when ``plan`` does not leave everybody with its result.

    Refused are also transfers of an IPU to itself, with IPUs that take no part,
    beyond the ends of a buffer, of elements that the source does not hold, and two
    in one round that put different elements into the same place without adding.
    """
    size = collective.count * collective.chunk if collective.operation == "all_to_all" else collective.elements
    _check_transfers(collective, size)
    cuts = _cuts(collective, size)
    held = _at_first(collective, cuts)
    for number, transfers in enumerate(collective.rounds):
        before = {ipu: dict(pieces) for ipu, pieces in held.items()}
        replaced: set[tuple[int, int]] = set()
        for each in transfers:
            for piece in cuts:
                if not each.start <= piece < each.stop:
                    continue
                if not before[each.source][piece]:
                    raise PlanError(
                        f"{collective.name}: round {number}: {each} sends what IPU {each.source} does not hold"
                    )
                place = piece + each.shift
                if each.reduce:
                    held[each.target][place] = held[each.target][place] + before[each.source][piece]
                elif (each.target, place) in replaced:
                    raise PlanError(f"{collective.name}: round {number}: {each} replaces element {place} a second time")
                else:
                    replaced.add((each.target, place))
                    held[each.target][place] = before[each.source][piece]
    for rank, ipu in enumerate(collective.participants):
        for place, content in _at_last(collective, rank, cuts).items():
            got = held[ipu].get(place, Counter())
            if got != content:
                raise PlanError(
                    f"{collective.name}: at the end IPU {ipu} holds a wrong element {place}: "
                    f"expected {_text(content)}, got {_text(got)}"
                )


def _check_transfers(collective: Collective, size: int) -> None:
    for number, transfers in enumerate(collective.rounds):
        for each in transfers:
            where = f"{collective.name}: round {number}: {each}"
            if each.source == each.target:
                raise PlanError(f"{where} stays on its IPU")
            for ipu in (each.source, each.target):
                if ipu not in collective.participants:
                    raise PlanError(f"{where} is with IPU {ipu}, which takes no part")
            if not min(each.start, each.start + each.shift) >= 0 or max(each.stop, each.stop + each.shift) > size:
                raise PlanError(f"{where} goes beyond the {size} elements of a buffer")
            if each.stop < each.start:
                raise PlanError(f"{where} ends before it begins")


def _cuts(collective: Collective, size: int) -> tuple[int, ...]:
    """Return the first element of every piece: all bounds, also where a shifted transfer carries them to."""
    transfers = [each for transfers in collective.rounds for each in transfers]
    bounds = {0, size}
    new = {bound for each in transfers for bound in (each.start, each.stop)}
    new |= {
        bound
        for rank in range(collective.count)
        for bound in (collective.chunk_of(rank).start, collective.chunk_of(rank).stop)
    }
    while new - bounds:
        bounds |= new
        new = set()
        for each in transfers:
            if each.shift:
                new |= {bound + each.shift for bound in bounds if each.start <= bound <= each.stop}
                new |= {bound - each.shift for bound in bounds if each.start <= bound - each.shift <= each.stop}
    return tuple(sorted(bounds - {size}))


def _within(part: slice, cuts: tuple[int, ...]) -> list[int]:
    return [piece for piece in cuts if part.start <= piece < part.stop]


def _at_first(collective: Collective, cuts: tuple[int, ...]) -> dict[int, dict[int, Content]]:
    held: dict[int, dict[int, Content]] = {}
    for rank, ipu in enumerate(collective.participants):
        own = collective.chunk_of(rank) if collective.operation == "all_gather" else slice(0, collective.elements)
        held[ipu] = {piece: Counter() for piece in cuts}
        held[ipu] |= {piece: Counter({(rank, piece): 1}) for piece in _within(own, cuts)}
    return held


def _at_last(collective: Collective, rank: int, cuts: tuple[int, ...]) -> Mapping[int, Content]:
    """Return what participant ``rank`` must hold, by piece; pieces that it need not hold are left out."""
    ranks, own = range(collective.count), _within(collective.chunk_of(rank), cuts)
    match collective.operation:
        case "all_reduce":
            return {piece: Counter((each, piece) for each in ranks) for piece in cuts}
        case "reduce_scatter":
            return {piece: Counter((each, piece) for each in ranks) for piece in own}
        case "all_gather":
            return {
                piece: Counter([(each, piece)]) for each in ranks for piece in _within(collective.chunk_of(each), cuts)
            }
        case "all_to_all":
            first = collective.chunk_of(rank).start
            return {
                collective.chunk * each + piece - first: Counter([(each, piece)]) for each in ranks for piece in own
            }


def _text(content: Content) -> str:
    if not content:
        return "nothing"
    parts = ((f"{count} x " if count > 1 else "", place, rank) for (rank, place), count in sorted(content.items()))
    return " + ".join(f"{times}element {place} of participant {rank}" for times, place, rank in parts)


def replica_groups(count: int, replicas: int) -> tuple[tuple[int, ...], ...]:
    """Return for each IPU of a replica the logical IPUs that hold the same stages, replica by replica.

    Replica r of a device of ``count`` IPUs is its r-th part, in logical order.
    Raises DeviceError when the replicas do not divide the IPUs.

    >>> replica_groups(8, 4)
    ((0, 2, 4, 6), (1, 3, 5, 7))
    """
    if replicas < 1 or count % replicas:
        raise DeviceError(f"expected a number of replicas that divides {count} IPUs, got {replicas}")
    size = count // replicas
    return tuple(tuple(range(ipu, count, size)) for ipu in range(size))


def collective_cost(system: System, collective: Collective) -> CollectiveCost:
    """Return what ``plan`` costs on ``system``'s links when nothing else uses them.

    Raises DeviceError for participants that the system does not have.
    """
    return concurrent_cost(system, [collective])
