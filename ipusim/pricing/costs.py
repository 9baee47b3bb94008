"""Define Costs: what each part of a Plan costs on a System, in whole cycles of the tile clock.

:mod:`ipusim.pricing.price` makes Costs, and the machine takes every duration from them without rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.hardware.copies import NOTHING_FIXED, FixedParts
from ipusim.hardware.formulas import Cycles, join, longest
from ipusim.hardware.links import LinkDirection
from ipusim.lowering.streams import Stream
from ipusim.model.collective_call import CollectiveCall
from ipusim.model.host_call import HostCall
from ipusim.model.work import TableBytes
from ipusim.pipeline.composites import OnePass, composites
from ipusim.pipeline.instructions import PASSES
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Edge
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import Overlapped
from ipusim.pricing import laws


@dataclass(frozen=True)
class LinkShare:
    """Share of a link direction in a merged copy: number (see :attr:`Costs.links`), bytes, cycles."""

    link: int
    bytes: int
    cycles: int


@dataclass(frozen=True)
class StepCopy:
    """Copies that follow a time-step.

    Attributes:
        edges: pairs of consecutive steps of a micro-batch; a tensor moves from the first step to the second, within an
            IPU or to another IPU.
        fixed: parts with constant duration for any payload; zero if the IPUs never meet.
        links: loads of link directions on the routes.
        bytes: total bytes of tensors crossing to another IPU.
    """

    edges: tuple[Edge, ...]
    fixed: FixedParts = NOTHING_FIXED
    links: tuple[LinkShare, ...] = ()
    bytes: int = 0

    @property
    def total_cycles(self) -> int:
        """Cycles of the whole copy: fixed parts plus the busiest link direction."""
        return self.fixed.total_cycles + max((share.cycles for share in self.links), default=0)


@dataclass(frozen=True)
class CopyCosts:
    """Copies between the IPUs.

    Attributes:
        by_group: distinct copies that follow time-steps, per group of meeting replicas. A single group if replicas meet
            together, a group per replica if replicas sync independently, empty in point-to-point.
        copy_of: for every emitted time-step, the index of its copy in a group.
        links: link directions with traffic, ordered by number.
    """

    by_group: tuple[tuple[StepCopy, ...], ...]
    copy_of: tuple[int, ...]
    links: tuple[LinkDirection, ...]

    @property
    def longest_cycles(self) -> int:
        """Cycles of the longest copy."""
        return max((copy.total_cycles for copies in self.by_group for copy in copies), default=0)

    @property
    def execution_cycles(self) -> int:
        """Total cycles of copies per execution, for the slowest group of replicas."""
        return max((sum(copies[number].total_cycles for number in self.copy_of) for copies in self.by_group), default=0)


class Send(NamedTuple):
    """Single transfer of a tensor between two IPUs.

    Attributes:
        bytes: bytes of one micro-batch.
        lead_cycles: cycles from hand-over to the first byte on the links: the hops of the route, and all fixed parts of
            an exchange between IPUs except the sync. The post-copy, which comes after the bytes, is included.
        links: numbers of the route's link directions.
        cycles: cycles from first to last byte, without competing traffic on links.
    """

    bytes: int = 0
    lead_cycles: int = 0
    links: tuple[int, ...] = ()
    cycles: int = 0

    def plain(self) -> Send:
        """Return the send with plain numbers instead of formulas, for faster arithmetic."""
        return Send(self.bytes, int(self.lead_cycles), self.links, int(self.cycles))


@dataclass(frozen=True)
class HostCosts:
    """Host copies per feed element, and the host's work between session runs, in cycles.

    Attributes:
        infeed, fill: IPU's read of an infeed element, host's preparation of the element.
        data: host's production of an infeed element's samples, sequential over elements and replicas; None if the
            host's data rate is unlimited.
        outfeed, drain: IPU's write of an outfeed element, host's read of the element.
        call: host's work between two session runs.
        state: host's work at each weight update for optimizer state in Streaming Memory.
    """

    infeed: int
    fill: int
    outfeed: int
    drain: int
    call: int = 0
    state: int = 0
    data: int | None = None

    def fill_of(self, infeeds: int) -> int:
        """Return the host's cycles to prepare an element for each of ``infeeds`` infeeds at once."""
        return max(self.fill, infeeds * (self.data or 0))

    def cycles_after(self, execution: int, repeat_count: int) -> int:
        """Return the host's cycles after ``execution`` executions; a session run has ``repeat_count`` executions."""
        return self.state if execution % repeat_count else self.state + self.call


@dataclass(frozen=True)
class TableCosts:
    """Costs of a stage's host tables per micro-batch, in cycles.

    Attributes:
        ids, gather, rows: IPU's write of the ids, host's search for the rows, IPU's read of the rows.
        gradients, apply: IPU's write of ids and gradients, host's update; 0 if no table is trained.
        bytes: bytes moved in both directions.
    """

    ids: int
    gather: int
    rows: int
    gradients: int
    apply: int
    bytes: TableBytes


@dataclass(frozen=True)
class ReplicaCollective:
    """Simultaneous collectives between a replica's IPUs and their counterparts in other replicas.

    Attributes:
        algorithm: a name of :data:`ipusim.hardware.collectives.choose.ALGORITHMS`.
        cost: joint cost of the collectives on shared links.
        bytes: size of the data. For a gradient sum: accumulators of one replica. For an all-gather: gathered contents
            of a replica. For a collective inside a pass: whole buffer of a group.
    """

    algorithm: str
    cost: CollectiveCost
    bytes: int


@dataclass(frozen=True)
class PassCollective(ReplicaCollective):
    """Collective inside a pass, simultaneous in every group of replicas.

    Attributes:
        call: collective called by a replica.
    """

    call: CollectiveCall


@dataclass(frozen=True)
class HostSum:
    """Sum over hosts before each weight update, in cycles.

    Attributes:
        write, read: longest copy of an IPU's gradients to the host, and back. The host keeps the gradients if it
            updates the weights.
        network: exchange among the hosts.
        bytes: gradient accumulators of one replica.
        over_links: collective among IPUs of different hosts, in place of the hosts' network.
    """

    write: int
    network: int
    read: int
    bytes: int
    over_links: ReplicaCollective | None = None


@dataclass(frozen=True)
class HostUpdate:
    """The host's weight update, in cycles.

    Attributes:
        write: longest copy of an IPU's gradients to the host; 0 after a sum over hosts.
        apply: host's reading of gradients and writing of weights, parallel over IPUs.
        read: longest copy of an IPU's new weights.
        gradients, weights: bytes of one replica.
    """

    write: int
    apply: int
    read: int
    gradients: int
    weights: int


@dataclass(frozen=True)
class PassHostCall:
    """Host call inside a pass, in cycles.

    Attributes:
        call: request to the host.
        send, read: IPU's write of the arguments, IPU's read of the results.
        drain, compute, fill: host's read of the buffer, host's operations, host's write of the buffer.
    """

    call: HostCall
    send: int
    drain: int
    compute: int
    fill: int
    read: int

    @cached_property
    def host(self) -> int:
        """Cycles of the host's work."""
        return laws.OUTSIDE(join(self.drain, self.compute, self.fill))


@dataclass(frozen=True)
class Costs:
    """Costs of a Plan's parts on a System, in tile clock cycles unless given as bytes.

    Attributes:
        passes: cycles by (pass, stage).
        updates: weight update cycles per IPU holding a stage.
        copies: copies between IPUs after time-steps.
        host: host copies.
        tables: traffic and cycles of stages with host tables.
        pass_streams: bytes streamed in before, and out after, every (pass, stage).
        update_streams: bytes from and to Streaming Memory around each IPU's weight update.
        copy_sum: gradient sum among copies of stages; None without copies or gradients.
        gradient_sum: gradient sum among replicas; None without gradients to sum.
        host_sum: gradient sum among hosts; None for one host.
        host_update: weight update on the host; None if IPUs update the weights.
        weight_gathers: all-gather before every pass, for stages with weights sharded over replicas.
        update_gathers: all-gather for the weight update, per IPU with variables in shards.
        collectives: replica collectives inside every (pass, stage), in order.
        host_calls: host calls inside each (pass, stage), in order.
        links: link directions with traffic, by number: directions of copies first, then directions used only by
            ``copy_sum`` and ``gradient_sum``.
        sends: sends in point-to-point by (replica, copy of the pipeline, source stage, target stage).
        moves: moves of activations by (replica, IPU in the replica, stage, way).
        instructions: cycles of each (code, stage) priced by an instruction's law; stage -1 for an instruction without
            a stage.
        overlapped: rule for a composite pass's cycles: a forward and a backward pass of two stages in one slot.

    Example:
        >>> from ipusim.api import Request, assemble, pipelines
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> costs = assemble(Request.from_dict(options)).costs
        >>> costs.passes[pipelines.Pass.BACKWARD, 1], costs.copies.execution_cycles
        (2000, 0)
    """

    passes: Mapping[tuple[int, int], int]
    updates: Mapping[int, int]
    copies: CopyCosts
    host: HostCosts
    tables: Mapping[int, TableCosts] = field(default_factory=dict)
    pass_streams: Mapping[tuple[int, int], Stream] = field(default_factory=dict)
    update_streams: Mapping[int, Stream] = field(default_factory=dict)
    copy_sum: ReplicaCollective | None = None
    gradient_sum: ReplicaCollective | None = None
    host_sum: HostSum | None = None
    host_update: HostUpdate | None = None
    weight_gathers: Mapping[int, ReplicaCollective] = field(default_factory=dict)
    update_gathers: Mapping[int, ReplicaCollective] = field(default_factory=dict)
    collectives: Mapping[tuple[int, int], tuple[PassCollective, ...]] = field(default_factory=dict)
    host_calls: Mapping[tuple[int, int], tuple[PassHostCall, ...]] = field(default_factory=dict)
    links: tuple[LinkDirection, ...] = ()
    sends: Mapping[tuple[int, int, int, int], Send] = field(default_factory=dict)
    moves: Mapping[tuple[int, int, int, int], Send] = field(default_factory=dict)
    instructions: Mapping[tuple[int, int], int] = field(default_factory=dict)
    overlapped: Overlapped = "sum"

    def composites(self, plan: Plan) -> Iterator[tuple[OnePass, ...]]:
        """Yield the passes of composite passes with a duration other than the sum.

        Args:
            plan: the Plan to run.

        Returns:
            The passes per composite pass, in execution order.
        """
        if self.overlapped != "sum":
            yield from composites(plan)

    def pass_cycles(self, plan: Plan) -> npt.NDArray[np.int64]:
        """Return the cycles of a Plan's passes at full speed.

        Args:
            plan: the Plan to run.

        Returns:
            Cycles of every instruction, in the order of :attr:`Plan.instructions`; 0 for instructions that are no pass.
        """
        _, code, stage, _, _ = plan.instructions.T
        prices = np.array(
            [
                [self.passes.get((kind, stage_number), 0) for stage_number in range(plan.shape.stages)]
                for kind in range(PASSES)
            ]
        )
        is_pass = code < PASSES
        cycles = np.zeros(len(code), np.int64)
        cycles[is_pass] = prices[code[is_pass], stage[is_pass]]
        if slots := list(self.composites(plan)):
            rows = enumerate(plan.instructions.tolist())
            row_of = {(code, *op): row for row, (_, code, *op, _) in rows if code < PASSES}
            for slot in slots:
                cycles[[row_of[op] for op in slot]] = self.parts_of_slot([op[:2] for op in slot])
        return cycles

    def slot_cycles(self, passes: Sequence[tuple[int, int]]) -> int:
        """Return the cycles of a composite pass with a duration other than the sum.

        Args:
            passes: (pass, stage) pairs in the slot.

        Returns:
            Cycles, a term.
        """
        if isinstance(self.overlapped, int):
            return laws.SLOT(self.overlapped)
        are_backward = [kind != Pass.FORWARD for kind, _ in passes]
        ways = [
            join(
                *(
                    self.passes[key]
                    for key, is_pass_backward in zip(passes, are_backward, strict=True)
                    if is_pass_backward == is_back
                )
            )
            for is_back in (False, True)
        ]
        return laws.SLOT(Cycles(longest, *ways))

    def parts_of_slot(self, passes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Split a composite pass's cycles in proportion to the passes' separate cycles.

        Args:
            passes: (pass, stage) pairs in the slot, in execution order.

        Returns:
            Cycles of each pass; the sum equals the slot's cycles.
        """
        whole, ends = self.slot_cycles(passes), [0, *accumulate(self.passes[key] for key in passes)]
        if not ends[-1]:
            return (*(0,) * (len(passes) - 1), whole)
        return tuple(whole * end // ends[-1] - whole * begin // ends[-1] for begin, end in pairwise(ends))
