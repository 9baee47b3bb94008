"""Compute when instructions end in point-to-point, without simulating events, as longest paths.

A node is an instruction that ends at ``T = max(T[a], T[b] + lead) + w``, or the host's work on an element of a feed:
``a`` is the IPU's previous node, ``b`` the node after which the awaited tensor was sent, ``lead`` the tensor's time on
the way and ``w`` the node's duration. Nodes are computed level by level, for K sets of durations at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.pipeline.instructions import PASSES, Code, any_of
from ipusim.pipeline.shape import Column, Mask
from ipusim.pricing.costs import Send
from ipusim.retiming.exact_run import ExactRun, body_and_ending
from ipusim.retiming.host_streams import Streams
from ipusim.retiming.scaled_cycles import Cycles
from ipusim.retiming.stretches import REPLICA_MEETINGS, Execution, meeting_cycles

_IDLE = (Code.RELEASE, Code.ADD_RESULTS)
_SENDS = (Code.SEND, Code.BLOCKING_SEND)
#: Row of an execution's begin, before the rows of feeds and the rows of nodes.
_BEGIN_ROW = 0


class Precedence:
    """Nodes of an execution, compiled once."""

    def __init__(self, run: ExactRun, streams: Streams, is_due: bool) -> None:
        """Compile the instructions of an execution; ``is_due`` tells whether results leave for the host."""
        self._run, plan = run, run.plan
        rows = body_and_ending(plan)[0]
        rows = rows[self._mask_of_timed(plan.instructions[rows], streams, is_due)]
        ipu, code, stage, micro_batch, number = plan.instructions[rows].T
        sends, receives = any_of(code, _SENDS), code == Code.RECEIVE
        is_merged = receives & np.r_[(code[1:] < PASSES) & (ipu[1:] == ipu[:-1]), False][: len(code)]
        is_node = ~is_merged & (code != Code.SEND)
        numbers = np.cumsum(is_node) - 1
        node_before = numbers - is_node  # the node before every instruction
        first = (np.cumsum(is_node) - is_node)[np.searchsorted(ipu, ipu)]
        #: Rows before nodes: the begin of the execution, and per stream a row for the host and rows for places.
        self._rows_before_nodes = 1 + sum(1 + stream.depth for stream in streams.values())
        node_before = np.where(node_before < first, _BEGIN_ROW, node_before + self._rows_before_nodes)
        nodes = np.flatnonzero(is_node)
        self._instructions, self._codes = rows[nodes], code[nodes]
        a, b = node_before[nodes], node_before[nodes]
        source, target = np.where(receives, number, stage), np.where(receives, stage, number)
        shape = plan.shape
        is_transfer = sends | receives
        key = ((micro_batch % len(shape.copies)) * shape.stages + source) * shape.stages + target
        key[~is_transfer] = 0
        is_way = np.bincount(key[sends], minlength=len(shape.copies) * shape.stages**2) > 0
        #: Copy of the pipeline, source and target stage of every way.
        self._ways = np.column_stack(np.unravel_index(np.flatnonzero(is_way), (len(shape.copies), *[shape.stages] * 2)))
        self._joint: list[JointWay] = []
        way_of = np.where(is_transfer, np.cumsum(is_way)[key], 0)
        tensor = way_of * shape.micro_batches + micro_batch
        sent_by = np.full((len(self._ways) + 1) * shape.micro_batches, -1)
        sent_by[tensor[sends]] = np.flatnonzero(sends)
        sender = sent_by[tensor[receives]]
        if (sender < 0).any() or not is_way[key[receives]].all():
            raise NotExactError("a tensor that no IPU sends")
        waits = numbers[np.flatnonzero(receives) + is_merged[receives]]
        b[waits] = node_before[sender]
        tensors = np.flatnonzero(code == Code.SEND)
        way_of[tensors] = self._joint_ways(node_before[tensors], way_of[tensors])
        lead_of = np.zeros(len(nodes), np.int64)
        lead_of[waits] = way_of[sender]
        way_of[receives] = 0
        #: Instruction, previous node and way of every tensor.
        self._tensors = rows[sends], node_before[sends], way_of[sends] - 1
        self._arrange(a, b, lead_of, way_of[nodes], streams)

    def _joint_ways(self, node: Column, way: Column) -> Column:
        """Return the way of every tensor; simultaneous tensors with a common route get additional ways.

        Tensors are simultaneous if an IPU sends several tensors after one node. Ways are numbered from 1.
        """
        way_of, begins = way.copy(), np.flatnonzero(np.r_[True, node[1:] != node[:-1]])
        counts = np.where(node[begins] == _BEGIN_ROW, 1, np.diff(np.r_[begins, len(node)])) if len(node) else begins
        for count in np.unique(counts[counts > 1]).tolist():
            members = begins[counts == count, np.newaxis] + np.arange(count)
            patterns, pattern = np.unique(way[members], axis=0, return_inverse=True)
            joint_ways = [self._ways_at_once(ways) for ways in patterns.tolist()]
            way_of[members] = np.array(joint_ways)[pattern.ravel()]
        return way_of

    def _ways_at_once(self, ways: list[int]) -> list[int]:
        """Return the ways of simultaneous tensors: additional ways for common routes."""
        sends = [
            [self._run.costs.sends.get((replica, *self._ways[way - 1].tolist()), Send()) for way in ways]
            for replica in range(self._run.system.replicas)
        ]
        routes = [[(send.links, int(send.lead_cycles)) for send in column] for column in zip(*sends, strict=True)]
        result = list(ways)
        for index, route in enumerate(routes):
            same_route = [number for number, other_route in enumerate(routes) if other_route == route]
            joint = [[replica_sends[number] for number in same_route] for replica_sends in sends]
            carries = all(send.links and send.cycles for replica_sends in joint for send in replica_sends)
            if len(same_route) == 1 or not carries or len({ways[number] for number in same_route}) < len(same_route):
                continue
            cycles = [self._run.joint_link_cycles(replica_sends) for replica_sends in joint]
            if self._run.replicas == 1 and cycles.count(cycles[0]) < len(cycles):
                continue
            own_index = same_route.index(index)
            self._joint.append(
                JointWay(
                    ways[index] - 1,
                    own_index == 0,
                    [ends[own_index] for ends in cycles],
                    [max(ends) for ends in cycles],
                )
            )
            result[index] = len(self._ways) + len(self._joint)
        return result

    def _mask_of_timed(self, table: Cycles, streams: Streams, is_due: bool) -> Mask:
        """Return a mask of the instructions that take time, send or receive."""
        ipu, code, _, micro_batch, number = table.T
        mask = ~any_of(code, _IDLE)
        for feed_code in (Code.INFEED, Code.OUTFEED):
            feed_shards = [
                shard for kind, shard in streams if kind is feed_code and (is_due or feed_code is Code.INFEED)
            ]
            mask &= (code != feed_code) | np.isin(ipu, feed_shards)
        is_send = any_of(code, _SENDS)
        mask &= ~(is_send & (self._run.plan.shape.ipu_of(np.where(is_send, number, 0), micro_batch) == ipu))
        return mask

    def _arrange(self, a: Column, b: Column, lead_of: Column, way_of: Column, streams: Streams) -> None:
        """Add the host's nodes of the feeds, and sort the nodes by level."""
        rows_before_nodes, count, row = self._rows_before_nodes, len(a), 1
        ipu = self._run.plan.instructions[self._instructions, 0]
        parts_a, parts_b, constants_of = [a], [b], [np.zeros(count, np.int64)]
        feed_rows = []
        for (code, shard), stream in streams.items():
            stream_rows = np.arange(row, row + 1 + stream.depth)
            row += len(stream_rows)
            feed_nodes = np.flatnonzero((ipu == shard) & (self._codes == code))
            constants_of[0][feed_nodes] = stream.copy_cycles
            if not (stream.host_cycles and len(feed_nodes)):
                continue
            host = rows_before_nodes + count + np.arange(len(feed_nodes))
            count += len(host)
            is_infeed = code is Code.INFEED
            places = np.r_[stream_rows[1:], rows_before_nodes + feed_nodes if is_infeed else host]
            free_places = places[: len(feed_nodes)]
            parts_a.append(np.r_[stream_rows[0], host[:-1]])
            parts_b.append(free_places if is_infeed else rows_before_nodes + feed_nodes)
            b[feed_nodes] = host if is_infeed else free_places
            constants_of.append(np.full(len(host), stream.host_cycles))
            feed_rows.append(((code, shard), stream_rows, host[-1], places[-stream.depth :]))
        for node in np.flatnonzero(any_of(self._codes, REPLICA_MEETINGS)).tolist():
            constants_of[0][node] = meeting_cycles(self._run, int(self._instructions[node]))
        a, b = np.concatenate(parts_a), np.concatenate(parts_b)
        levels = _levels(a, b, rows_before_nodes)
        order = np.argsort(levels, kind="stable")
        row_of = np.arange(rows_before_nodes + count)
        row_of[rows_before_nodes + order] = rows_before_nodes + np.arange(count)
        self._row_of = row_of
        self._a, self._b = row_of[a][order], row_of[b][order]
        zeros_of_host = np.zeros(count - len(lead_of), np.int64)
        self._lead_of = np.r_[lead_of, zeros_of_host][order]
        self._bounds = np.searchsorted(levels[order], np.arange(int(levels.max(initial=-1)) + 2)).tolist()
        coupled = np.r_[any_of(self._codes, REPLICA_MEETINGS), zeros_of_host > 0][order]
        #: Masks of nodes with meetings of replicas, by level.
        self._coupled = {
            row: coupled[low:high] for row, (low, high) in enumerate(pairwise(self._bounds)) if coupled[low:high].any()
        }
        self._feed_rows = [
            (key, row_of[stream_rows], row_of[host], row_of[places]) for key, stream_rows, host, places in feed_rows
        ]
        instructions = np.r_[np.where(self._codes < PASSES, self._instructions, -1), zeros_of_host - 1]
        #: Instruction of every node's pass; -1 for other nodes.
        self._pass_of = instructions[order]
        constants, constant = np.unique(np.concatenate(constants_of), return_inverse=True)
        way_or_zero = np.r_[way_of, zeros_of_host]
        #: Row of other nodes' cycles among the constants.
        self._constant_of = np.where(way_or_zero > 0, len(constants) - 1 + way_or_zero, constant.ravel())[order]
        send_prices = self._send_prices()
        self._leads = np.concatenate([np.zeros((1, self._run.replicas, 1), np.int64), send_prices[..., 1:]])
        self._constants = constants[:, np.newaxis, np.newaxis]
        last = {shard: rows_before_nodes + np.flatnonzero(ipu == shard)[-1:] for shard in self._run.plan.ipus}
        self._last = {shard: int(row_of[row[0]]) if len(row) else _BEGIN_ROW for shard, row in last.items()}
        self._loads = self._find_loads(send_prices[..., 0])

    def _send_prices(self) -> Cycles:
        """Return cycles to the first and last byte of every way's tensors, shape (ways, replicas, 2)."""
        replicas = range(self._run.replicas)
        prices = [[self._run.send_cycles(replica, *way) for replica in replicas] for way in self._ways.tolist()]
        prices += [
            [(lead, lead + joint.cycles[replica]) for replica, (lead, _) in enumerate(prices[joint.way])]
            for joint in self._joint
        ]
        return np.array(prices, np.int64).reshape(len(prices), len(replicas), 2)

    def _find_loads(self, leads: Cycles) -> Loads:
        """Return the loads of link directions, for lead times of shape (ways, replicas)."""
        run, way = self._run, self._tensors[2]
        parts = [np.zeros((5, 0), np.int64)]
        ways: list[tuple[int, JointWay | None]] = [(number, None) for number in range(len(self._ways))]
        ways += [(joint.way, joint) for joint in self._joint]
        for number, (own_way, joint) in enumerate(ways):
            # Simultaneous tensors load links once.
            tensors = np.flatnonzero(way == number) if joint is None or joint.is_first else way[:0]
            for replica in range(run.system.replicas):
                key = replica, *self._ways[own_way].tolist()
                send, replica_row = run.costs.sends.get(key, Send()), replica % run.replicas
                cycles = run.link_cycles(send) if joint is None else joint.joint_cycles[replica]
                lead = int(leads[number, replica_row])
                for link in send.links:
                    numbers = np.array([link, replica_row, lead, cycles])
                    parts.append(np.concatenate([tensors[np.newaxis], np.repeat(numbers, len(tensors)).reshape(4, -1)]))
        loads = np.concatenate(parts, axis=1)
        return Loads(*loads[:, np.argsort(loads[1], kind="stable")])

    def carry_out(self, execution: Execution, start: Cycles) -> Mapping[int, Cycles]:
        """Return the end of every IPU's pipeline, for an execution begun in ``start``.

        Times have shape (replicas, K).
        """
        passes = execution.passes
        times = np.empty((self._rows_before_nodes + len(self._a), *start.shape), np.int64)
        times[_BEGIN_ROW] = start
        for key, stream_rows, *_ in self._feed_rows:
            stream = execution.streams[key]
            times[stream_rows[0]], times[stream_rows[1:]] = stream.host_end, np.stack(stream.places)
        leads = self._leads + np.where(self._leads > 0, execution.further, 0)
        shape = (-1, *start.shape)
        parts = (passes.table, self._constants, leads[1:])
        weights = np.concatenate([np.broadcast_to(part, (len(part), *shape[1:])) for part in parts])
        weight_of = np.where(self._pass_of >= 0, passes.rows[self._pass_of], len(passes.table) + self._constant_of)
        low = 0
        for level, high in enumerate(self._bounds[1:]):
            ready = times.take(self._b[low:high], axis=0)
            ready += leads.take(self._lead_of[low:high], axis=0)
            np.maximum(ready, times.take(self._a[low:high], axis=0), out=ready)
            if level in self._coupled:
                coupled = self._coupled[level]
                ready[coupled] = ready[coupled].max(axis=1, keepdims=True)
            ready += weights.take(weight_of[low:high], axis=0)
            times[self._rows_before_nodes + low : self._rows_before_nodes + high] = ready
            low = high
        for key, _, host, places in self._feed_rows:
            stream = execution.streams[key]
            stream.host_end = times[host]
            stream.places.extend(times[places])
        rows, leaves, way = self._tensors
        leave_times = times[self._row_of[leaves]]
        are_exact, self._loads = self._loads.are_apart(leave_times, execution.further)
        # Further cycles are undefined for simultaneous tensors.
        execution.exact &= are_exact & ((execution.further == 0) | (not self._joint))
        if execution.record is not None:
            rows_of_passes = np.flatnonzero(self._pass_of >= 0)
            ends = times[self._rows_before_nodes + rows_of_passes]
            execution.record.note(self._pass_of[rows_of_passes], ends - weights[weight_of[rows_of_passes]], ends)
            execution.record.note(rows, leave_times, leave_times + leads[1 + way])
        return {shard: times[row] for shard, row in self._last.items()}


class JointWay(NamedTuple):
    """A way of simultaneous tensors with a common route from one IPU.

    Attributes:
        way: number of the way of a tensor alone.
        is_first: whether the way represents all simultaneous tensors as a load of links.
        cycles: cycles from first to last byte of a tensor, per replica.
        joint_cycles: cycles from first to last byte of all simultaneous tensors, per replica.
    """

    way: int
    is_first: bool
    cycles: list[int]
    joint_cycles: list[int]


class Loads(NamedTuple):
    """The loads of link directions in an execution, a row per tensor, direction and replica.

    Rows are sorted by link direction; :meth:`are_apart` also sorts rows by begin and end.

    Attributes:
        tensor: number of the tensor.
        link: number of the link direction.
        replica: index on the axis of replicas.
        lead: cycles from the handover to the first byte.
        cycles: cycles from the first byte to the last.
    """

    tensor: Column
    link: Column
    replica: Column
    lead: Column
    cycles: Column

    def are_apart(self, leave_times: Cycles, further: Cycles) -> tuple[Mask, Loads]:
        """Return whether tensors never use a link at the same time, and the loads sorted by begin.

        Args:
            leave_times: cycle in which every tensor leaves, shape (tensors, replicas, K).
            further: additional cycles of every tensor on its links, shape (K,).

        Returns:
            A mask of shape (K,), and the loads, sorted for the last set of durations that needed a different order.
        """
        exact, loads = self._are_in_turn(leave_times, further), self
        for column in np.flatnonzero(~exact).tolist():
            if exact[column]:
                continue
            begins = leave_times[loads.tensor, loads.replica, column] + loads.lead
            order = np.lexsort((begins + loads.cycles, begins, loads.link))
            in_order = Loads(*(column_values[order] for column_values in loads))
            if in_order._are_in_turn(leave_times[..., [column]], further[[column]]).all():
                exact[~exact] = in_order._are_in_turn(leave_times[..., ~exact], further[~exact])
                loads = in_order
        return exact, loads

    def _are_in_turn(self, leave_times: Cycles, further: Cycles) -> Mask:
        """Return whether every tensor begins at or after the end of the previous tensor on its link, shape (K,)."""
        begins = leave_times[self.tensor, self.replica] + self.lead[:, np.newaxis]
        gap_cycles = begins[1:] - begins[:-1] - self.cycles[:-1, np.newaxis] - further
        is_same = np.diff(self.link) == 0
        are_exact: Mask = (gap_cycles[is_same] >= 0).all(axis=0)
        return are_exact


def _levels(a: Column, b: Column, rows_before_nodes: int) -> Column:
    """Return the level of every node: above the levels of both predecessors."""
    count = len(a)
    followers = [*_followers(a - rows_before_nodes), *_followers(np.where(a == b, -1, b - rows_before_nodes))]
    waits_for = np.r_[(a >= rows_before_nodes).astype(np.int64) + ((b >= rows_before_nodes) & (a != b)), -1]
    levels = np.full(count, -1)
    front, level = np.flatnonzero(waits_for == 0), 0
    while len(front):
        levels[front] = level
        level += 1
        reached = [follower[front] for follower in followers]
        for nodes in reached:
            waits_for[nodes] -= 1
        ready = [front[:0]]
        for nodes in reached:
            ready.append(nodes[waits_for[nodes] == 0])
            waits_for[ready[-1]] = -1  # reached from both predecessors, a node counts once
        front = np.concatenate(ready)
    if (levels < 0).any():
        raise NotExactError("a Plan with a deadlock")
    return levels


def _followers(predecessor: Column) -> Iterator[Column]:
    """Yield the first follower of every node, then the second, and so on; the last place if there is none.

    ``predecessor`` is the predecessor of every node; negative without one.
    """
    pending = np.flatnonzero(predecessor >= 0)
    while len(pending):
        follower = np.full(len(predecessor), len(predecessor))
        follower[predecessor[pending]] = pending
        yield follower
        pending = pending[follower[predecessor[pending]] != pending]
