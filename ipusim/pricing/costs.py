"""Costs of a Plan on a System, in whole cycles of the tile clock; the machine never rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.hardware.copies import NOTHING_FIXED, FixedParts
from ipusim.hardware.formulas import Cycles, joined, longest
from ipusim.hardware.links import LinkDirection
from ipusim.lowering.streams import Stream
from ipusim.model.collective_call import CollectiveCall
from ipusim.model.host_call import HostCall
from ipusim.model.work import TableBytes
from ipusim.pipeline.composites import OnePass, composites
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Edge
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import Overlapped
from ipusim.pricing import laws


@dataclass(frozen=True)
class LinkShare:
    """One link direction's share of a merged copy: its number (see :attr:`Costs.links`), bytes, cycles."""

    link: int
    bytes: int
    cycles: int


@dataclass(frozen=True)
class StepCopy:
    """The copies that follow a time-step.

    Attributes:
        edges: steps of a micro-batch's life along which tensors move, within an IPU or across.
        fixed: the parts that are as long whatever is carried; all 0 where the IPUs do not meet.
        links: what each link direction on the routes carries.
        bytes: bytes of all tensors that cross to another IPU.
    """

    edges: tuple[Edge, ...]
    fixed: FixedParts = NOTHING_FIXED
    links: tuple[LinkShare, ...] = ()
    bytes: int = 0

    @property
    def total_cycles(self) -> int:
        """Cycles of the whole copy: its fixed parts, and the busiest link direction."""
        return self.fixed.total_cycles + max((share.cycles for share in self.links), default=0)


@dataclass(frozen=True)
class CopyCosts:
    """The copies between the IPUs.

    Attributes:
        meetings: the distinct copies that follow time-steps, of each group of replicas that meets for
            them: of all together, or of each replica where they do not wait for each other; none in point-to-point.
        copy_of: for each emitted time-step, which of a meeting's copies follows it.
        links: the link directions that carry any of them, in the order of their numbers.
    """

    meetings: tuple[tuple[StepCopy, ...], ...]
    copy_of: tuple[int, ...]
    links: tuple[LinkDirection, ...]

    @property
    def longest_cycles(self) -> int:
        """Cycles of the longest copy."""
        return max((copy.total_cycles for copies in self.meetings for copy in copies), default=0)

    @property
    def execution_cycles(self) -> int:
        """Cycles of all copies of one execution, of the replicas that need longest for them."""
        return max((sum(copies[which].total_cycles for which in self.copy_of) for copies in self.meetings), default=0)


class Send(NamedTuple):
    """One tensor's way from one IPU to another, by itself.

    Attributes:
        bytes: of one micro-batch.
        lead_cycles: from the moment that it is handed over to its first byte on the links: the fixed parts of an
            exchange between IPUs but for the sync, the one behind the bytes too, and the hops of its route.
        links: numbers of the link directions of its route.
        cycles: from its first byte to its last, with the links to itself.
    """

    bytes: int = 0
    lead_cycles: int = 0
    links: tuple[int, ...] = ()
    cycles: int = 0

    def plain(self) -> Send:
        """Return the send in plain numbers, without the formulas behind them: arithmetic is faster."""
        return Send(self.bytes, int(self.lead_cycles), self.links, int(self.cycles))


@dataclass(frozen=True)
class HostCosts:
    """The host copies of one element of each feed, and what the host does between session runs, in cycles.

    Attributes:
        infeed, fill: IPU's read of an infeed element, host's preparation of it.
        data: host's making of an infeed element's samples, one element after the other for all replicas; None
            without a limit to the host's data rate.
        outfeed, drain: IPU's write of an outfeed element, host's taking of it.
        call: what the host does between two session runs.
        state: what it does at each weight update whose optimizer state lies off chip.
    """

    infeed: int
    fill: int
    outfeed: int
    drain: int
    call: int = 0
    state: int = 0
    data: int | None = None

    def fill_of(self, infeeds: int) -> int:
        """Return the cycles in which the host prepares an element for each of some infeeds at once."""
        return max(self.fill, infeeds * (self.data or 0))

    def behind(self, execution: int, repeat_count: int) -> int:
        """Return the cycles of the host behind so many executions, of which ``repeat_count`` are a session run."""
        return self.state if execution % repeat_count else self.state + self.call


@dataclass(frozen=True)
class TableCosts:
    """The costs of a stage's tables on the host for one micro-batch, in cycles.

    Attributes:
        ids, gather, rows: the IPU's write of the ids, the host's search for their rows, the IPU's read of these.
        gradients, apply: the IPU's write of ids and gradients, the host's update; 0 where no table learns.
        bytes: what moves.
    """

    ids: int
    gather: int
    rows: int
    gradients: int
    apply: int
    bytes: TableBytes


@dataclass(frozen=True)
class ReplicaCollective:
    """Collectives of IPUs of a replica with their likes in the others, all at once.

    Attributes:
        algorithm: a name of :data:`ipusim.hardware.collectives.choose.ALGORITHMS`.
        cost: of all that run at the same time, on the links that they share.
        bytes: of the gradient accumulators of one replica; of what each replica holds behind an all-gather; of the
            whole buffer of a group, where a pass calls it.
    """

    algorithm: str
    cost: CollectiveCost
    bytes: int


@dataclass(frozen=True)
class PassCollective(ReplicaCollective):
    """A collective in the middle of a pass, all groups of replicas at once.

    Attributes:
        call: what a replica calls.
    """

    call: CollectiveCall


@dataclass(frozen=True)
class HostSum:
    """The sum over hosts before each weight update, in cycles.

    Attributes:
        write, read: the longest of the IPUs' copies of their gradients to the host, and back; they do not come back
            where the host updates the weights.
        network: what the hosts need among each other.
        bytes: gradient accumulators of one replica.
        over_links: in place of these, how the IPUs of all hosts do it among each other.
    """

    write: int
    network: int
    read: int
    bytes: int
    over_links: ReplicaCollective | None = None


@dataclass(frozen=True)
class HostUpdate:
    """The weight update on the host, in cycles.

    Attributes:
        write: the longest of the IPUs' copies of their gradients to the host; 0 where it has them from the sum over
            hosts.
        apply: the host's reading of gradients and writing of weights, those of all IPUs side by side.
        read: the longest of the IPUs' copies of their new weights.
        gradients, weights: bytes of one replica.
    """

    write: int
    apply: int
    read: int
    gradients: int
    weights: int


@dataclass(frozen=True)
class PassHostCall:
    """A host call in the middle of a pass, in cycles.

    Attributes:
        call: what it is asked.
        send, read: the IPU's write of what goes there, its read of what comes back.
        drain, compute, fill: the host's read of its buffer, its operations, its write of its buffer.
    """

    call: HostCall
    send: int
    drain: int
    compute: int
    fill: int
    read: int

    @cached_property
    def host(self) -> int:
        """Cycles in which the host works."""
        return laws.OUTSIDE(joined(self.drain, self.compute, self.fill))


@dataclass(frozen=True)
class Costs:
    """What everything of a Plan costs on a System, in cycles of the tile clock where it does not say bytes.

    Attributes:
        passes: cycles of each (pass, stage).
        updates: cycles of the weight update of each IPU that holds a stage.
        copies: what moves between IPUs after time-steps.
        host: host copies.
        tables: what the stages that have tables on the host move there and back.
        pass_streams: bytes that come from Streaming Memory before each (pass, stage) and go back after it.
        update_streams: the same of each IPU's weight update.
        copy_sum: how the copies of each stage sum up their gradients; None where there is one, or nothing to sum up.
        gradient_sum: how the replicas sum up their gradients; None where there is nothing to sum up.
        host_sum: how the hosts do; None where there is one.
        host_update: the weight update on the host; None where the IPUs do it.
        weight_gathers: the all-gather before each pass of a stage whose weights are spread over the replicas.
        update_gathers: the all-gather before the weight update of each IPU of which replicas store parts.
        collectives: what replicas do together in each (pass, stage), one after the other.
        host_calls: what the host does in each (pass, stage), one after the other.
        links: the link directions that carry anything, by number: those of the copies, then those of
            ``copy_sum`` and ``gradient_sum`` alone.
        sends: in point-to-point, what is sent: by replica, copy of the pipeline, stage, and stage that it goes to.
        moves: what each move of activations takes: by replica, IPU in it, stage, and way.
        instructions: cycles of each (code, stage) that has a law of its own; stage -1 where it has none.
        overlapped: what a composite pass takes of the cycles of its passes.

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
        """Yield the passes of each composite pass that takes another time than they do one after the other.

        Args:
            plan: what runs.

        Returns:
            Of each its passes, in the order in which they run.
        """
        if self.overlapped != "sum":
            yield from composites(plan)

    def slot_cycles(self, passes: Sequence[tuple[int, int]]) -> int:
        """Return the cycles of a composite pass that does not take the sum of its passes.

        Args:
            passes: each (pass, stage) that runs in its slot.

        Returns:
            Cycles, a term.
        """
        if isinstance(self.overlapped, int):
            return laws.SLOT(self.overlapped)
        back = [kind != Pass.FORWARD for kind, _ in passes]
        ways = [
            joined(*(self.passes[one] for one, own in zip(passes, back, strict=True) if own == is_back))
            for is_back in (False, True)
        ]
        return laws.SLOT(Cycles(longest, *ways))

    def parts_of_slot(self, passes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Return each pass's part of the cycles of a composite pass, in proportion to its own.

        Args:
            passes: each (pass, stage) that runs in its slot, in the order in which they run.

        Returns:
            Cycles of each; all of them are those of the slot.
        """
        whole, ends = self.slot_cycles(passes), [0, *accumulate(self.passes[one] for one in passes)]
        if not ends[-1]:
            return (*(0,) * (len(passes) - 1), whole)
        return tuple(whole * end // ends[-1] - whole * begin // ends[-1] for begin, end in pairwise(ends))
