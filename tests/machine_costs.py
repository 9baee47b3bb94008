"""Costs of the machine, computed apart: collectives, exchanges, passes of layers, and rows of measurements.

A collective's result is found by following every element: each of each participant's is a number of 63 bits of its own,
and sums of such numbers, modulo 2^64, say which were added. 0 is what nothing was put into. Nothing here looks at how a
plan of transfers was made.
"""

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ipusim.app.fidelity.throughput_rows import read_throughputs
from ipusim.app.fidelity.throughputs import prepare_rows, simulate_rows
from ipusim.app.scenario import load_job
from ipusim.base.errors import DeviceError, PlanError
from ipusim.hardware.collectives.collective import Collective, Transfer
from ipusim.hardware.collectives.cost import CollectiveCost, concurrent_cost
from ipusim.hardware.generations import IpuSpec
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.hardware.system import System
from ipusim.model.work import Work
from ipusim.pricing.passes import pass_cycles

Elements = npt.NDArray[np.uint64]


def check_collective(collective: Collective) -> None:
    """Raise PlanError, naming round, transfer or IPU, when ``plan`` does not leave everybody with its result.

    Refused are also transfers of an IPU to itself, with IPUs that take no part,
    beyond the ends of a buffer, of elements that the source does not hold, and two
    in one round that put different elements into the same place without adding.
    """
    size = collective.count * collective.chunk if collective.operation == "all_to_all" else collective.elements
    own = np.random.default_rng(0).integers(1, 1 << 63, (collective.count, size), dtype=np.uint64)
    held = {ipu: np.zeros(size, np.uint64) for ipu in collective.participants}
    for rank, ipu in enumerate(collective.participants):
        first = collective.chunk_of(rank) if collective.operation == "all_gather" else slice(0, collective.elements)
        held[ipu][first] = own[rank][first]
    for number, transfers in enumerate(collective.rounds):
        before = {ipu: elements.copy() for ipu, elements in held.items()}
        replaced = {ipu: np.zeros(size, bool) for ipu in held}
        for each in transfers:
            where = f"{collective.name}: round {number}: {each}"
            _check_transfer(each, collective, size, where)
            sent, place = (
                before[each.source][each.start : each.stop],
                slice(each.start + each.shift, each.stop + each.shift),
            )
            if not sent.all():
                raise PlanError(f"{where} sends what IPU {each.source} does not hold")
            if each.reduce:
                held[each.target][place] += sent
                continue
            if replaced[each.target][place].any():
                raise PlanError(f"{where} replaces an element a second time")
            replaced[each.target][place] = True
            held[each.target][place] = sent
    for rank, ipu in enumerate(collective.participants):
        for place, content in _at_last(collective, rank, own):
            if (held[ipu][place] != content).any():
                raise PlanError(f"{collective.name}: at the end IPU {ipu} holds a wrong element in {place}")


def _check_transfer(transfer: Transfer, collective: Collective, size: int, where: str) -> None:
    if transfer.source == transfer.target:
        raise PlanError(f"{where} stays on its IPU")
    for ipu in (transfer.source, transfer.target):
        if ipu not in collective.participants:
            raise PlanError(f"{where} is with IPU {ipu}, which takes no part")
    ends = transfer.start, transfer.stop, transfer.start + transfer.shift, transfer.stop + transfer.shift
    if min(ends) < 0 or max(ends) > size:
        raise PlanError(f"{where} goes beyond the {size} elements of a buffer")
    if transfer.stop < transfer.start:
        raise PlanError(f"{where} ends before it begins")


def _at_last(collective: Collective, rank: int, own: Elements) -> Iterator[tuple[slice, Elements]]:
    """Yield what participant ``rank`` must hold, part by part; it need not hold others."""
    mine = collective.chunk_of(rank)
    match collective.operation:
        case "all_reduce":
            yield slice(None), own.sum(axis=0)
        case "reduce_scatter":
            yield mine, own.sum(axis=0)[mine]
        case "all_gather":
            for each in range(collective.count):
                yield collective.chunk_of(each), own[each][collective.chunk_of(each)]
        case "all_to_all":
            for each in range(collective.count):
                first = collective.chunk * each
                yield slice(first, first + mine.stop - mine.start), own[each][mine]


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


#: Code of the tiles, in cycles of whatever clock: a sync on chip, what 16 IPUs take beyond it and the signal, and the
#: copies on the tiles before and behind a global exchange (T. Louw's stencil experiments, 16 IPUs, float).
ON_CHIP, SKEW, PRE_COPY, POST_COPY = 150, 640 - 240 - 150, 1894, 954
#: Nanoseconds of a global exchange that carries next to nothing: of 2 IPUs, and of more.
PAIR_NS, BEYOND_PAIR_NS = 1350, 2400


def sync_cycles(ipus: int, clock_hz: int, across_ns: int = 0) -> int:
    """The sync of a device: the signal there and back over hops of 15 ns, and across pods; and the tiles."""
    if ipus == 1:
        return 0
    signal_ns = 2 * 15 * (1 + min(ipus, 64) // 4) + across_ns
    return math.ceil(Fraction(signal_ns * clock_hz, 10**9)) + ON_CHIP + SKEW


def exchange_cycles(ipus: int, clock_hz: int) -> int:
    """The fixed time of a global exchange."""
    return math.ceil(Fraction((PAIR_NS if ipus == 2 else BEYOND_PAIR_NS) * clock_hz, 10**9))


def fixed_cycles(ipus: int, clock_hz: int) -> int:
    """All fixed parts of a copy but sync and hops."""
    return PRE_COPY + exchange_cycles(ipus, clock_hz) + POST_COPY


def work_cycles(work: Work, ipu: IpuSpec, rates: Rates = DEFAULT_RATES) -> int:
    return pass_cycles((work,), ipu, rates)


def vector_operations(work: Work) -> int:
    """Return the operations of all kinds of vector work: one each, but four for exp, tanh, a square root..."""
    vector = work.vector
    return vector.elementwise + vector.reductions + vector.quotients + 4 * vector.transcendentals


#: Products, functions and norms of a size at which each rate of computation is felt.
MODEL = """\
system: {name: m2000}
numerics: off
precision: float16
data: {type: synthetic_targets, shape: [2048], target_shape: [2048], samples: 100000}
model:
  layers:
    - {name: wide, type: dense, units: 4096}
    - {name: bend, type: activation, activation: tanh}
    - {name: norm, type: layer_norm}
    - {name: narrow, type: dense, units: 2048, activation: relu}
    - {name: loss, type: mean_squared_error}
pipeline: {splits: [bend, norm, narrow], micro_batch_size: 256, gradient_accumulation_count: 8}
optimizer: {type: sgd, learning_rate: 0.1}
"""


def write_scenarios(folder):
    """Write two scenarios of different sizes; return their names."""
    (folder / "large.yaml").write_text(MODEL)
    (folder / "small.yaml").write_text(MODEL.replace("micro_batch_size: 256", "micro_batch_size: 16"))
    return ("large.yaml", "small.yaml")


def stage_rows(folder, names, rates, noise=0.0, seed=0):
    """Return CSV of the cycles of all stages of scenarios, by ``rates`` instead of theirs."""
    draw = random.Random(seed)
    lines = ["scenario,stage,forward,backward,update"]
    for name in names:
        job = _job(folder / name, (folder / name).read_text())
        for number, stage in enumerate(job.program.stages):
            passes = (
                pass_cycles(cost, job.system.ipu, rates) for cost in (stage.forward, stage.backward, stage.update)
            )
            cells = [round(cycles * (1 + draw.gauss(0, noise))) for cycles in passes]
            lines.append(f"{name},{number},{','.join(map(str, cells))}")
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=8)
def _job(path, text):
    """Return the Job of a scenario; rows are made of the same ones again and again."""
    return load_job(path)


def throughput_rows(path, rows, rates, noise=0.0, seed=0):
    """Write throughputs into ``path``, of rows that have all but the last column, by ``rates``."""
    draw = random.Random(seed)
    header = "model,machine,ipus,micro_batch,count,framework,items_per_s\n"
    path.write_text(header + "".join(f"{row},1\n" for row in rows))
    simulated = simulate_rows(prepare_rows(read_throughputs(path)), rates)
    found = [each.items_per_s * (1 + draw.gauss(0, noise)) for each in simulated]
    path.write_text(header + "".join(f"{row},{value:.6g}\n" for row, value in zip(rows, found, strict=True)))
