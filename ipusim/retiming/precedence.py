"""Times of a run in point-to-point without simulating events: the end of every instruction, level by level.

A node is an instruction that ends at ``T = max(T[a], T[b] + lead) + w``, or the host's work on an element of a feed:
``a`` is the IPU's previous node, ``b`` the node after which the awaited tensor was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.pipeline.instructions import PASSES, Code, any_of
from ipusim.pipeline.shape import Column, Mask
from ipusim.pricing.costs import Send
from ipusim.retiming.exact_run import Cycles, ExactRun, body_and_ending
from ipusim.retiming.host_streams import Streams
from ipusim.retiming.stretches import COUPLED, Execution, meeting_cycles

_IDLE = (Code.RELEASE, Code.ADD_RESULTS)
_SENDS = (Code.SEND, Code.BLOCKING_SEND)
#: Row of an execution's begin, before the rows of feeds and the rows of nodes.
_BEGIN = 0


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
        self._outer = 1 + sum(1 + stream.depth for stream in streams.values())
        node_before = np.where(node_before < first, _BEGIN, node_before + self._outer)
        nodes = np.flatnonzero(is_node)
        self._instructions, self._codes = rows[nodes], code[nodes]
        a, b = node_before[nodes], node_before[nodes]
        source, target = np.where(receives, number, stage), np.where(receives, stage, number)
        shape = plan.shape
        tensor = (source * shape.stages + target) * shape.micro_batches + micro_batch
        send_rows, receive_tensors = np.flatnonzero(sends), tensor[receives]
        send_rows = send_rows[np.argsort(tensor[send_rows])]
        sender = (
            send_rows[np.searchsorted(tensor[send_rows], receive_tensors).clip(max=len(send_rows) - 1)]
            if len(send_rows)
            else send_rows
        )
        if not np.array_equal(tensor[sender], receive_tensors):
            raise NotExactError("a tensor that no IPU sends")
        waits = numbers[np.flatnonzero(receives) + is_merged[receives]]
        b[waits] = node_before[sender]
        copy = micro_batch % len(shape.copies)
        self._ways, way = np.unique(np.column_stack([copy, source, target])[sends], axis=0, return_inverse=True)
        way_of = np.zeros(len(rows), np.int64)
        way_of[sends] = 1 + way.ravel()
        lead_of = np.zeros(len(nodes), np.int64)
        lead_of[waits] = way_of[sender]
        #: Instruction, previous node and way (copy of the pipeline, source and target stage) of every tensor.
        self._tensors = rows[sends], node_before[sends], way.ravel()
        self._arrange(a, b, lead_of, way_of[nodes], streams)

    def _mask_of_timed(self, table: Cycles, streams: Streams, is_due: bool) -> Mask:
        """Return a mask of the instructions that take time, send or receive."""
        ipu, code, _, micro_batch, number = table.T
        mask = ~any_of(code, _IDLE)
        for feed_code in (Code.INFEED, Code.OUTFEED):
            fed = [shard for kind, shard in streams if kind is feed_code and (is_due or feed_code is Code.INFEED)]
            mask &= (code != feed_code) | np.isin(ipu, fed)
        is_send = any_of(code, _SENDS)
        mask &= ~(is_send & (self._run.plan.shape.ipu_of(np.where(is_send, number, 0), micro_batch) == ipu))
        return mask

    def _arrange(self, a: Column, b: Column, lead_of: Column, way_of: Column, streams: Streams) -> None:
        """Add the host's nodes of the feeds, and sort the nodes by level."""
        outer, count, row = self._outer, len(a), 1
        ipu = self._run.plan.instructions[self._instructions, 0]
        parts_a, parts_b, constants_of = [a], [b], [np.zeros(count, np.int64)]
        fed = []
        for (code, shard), stream in streams.items():
            stream_rows = np.arange(row, row + 1 + stream.depth)
            row += len(stream_rows)
            feed_nodes = np.flatnonzero((ipu == shard) & (self._codes == code))
            constants_of[0][feed_nodes] = stream.copy
            if not (stream.host and len(feed_nodes)):
                continue
            host = outer + count + np.arange(len(feed_nodes))
            count += len(host)
            takes = code is Code.INFEED
            places = np.r_[stream_rows[1:], outer + feed_nodes if takes else host]
            free = places[: len(feed_nodes)]
            parts_a.append(np.r_[stream_rows[0], host[:-1]])
            parts_b.append(free if takes else outer + feed_nodes)
            b[feed_nodes] = host if takes else free
            constants_of.append(np.full(len(host), stream.host))
            fed.append(((code, shard), stream_rows, host[-1], places[-stream.depth :]))
        for node in np.flatnonzero(any_of(self._codes, COUPLED)).tolist():
            constants_of[0][node] = meeting_cycles(self._run, int(self._instructions[node]))
        a, b = np.concatenate(parts_a), np.concatenate(parts_b)
        levels = _levels(a, b, outer)
        order = np.argsort(levels, kind="stable")
        row_of = np.arange(outer + count)
        row_of[outer + order] = outer + np.arange(count)
        self._row_of = row_of
        self._a, self._b = row_of[a][order], row_of[b][order]
        further = np.zeros(count - len(lead_of), np.int64)
        self._lead_of = np.r_[lead_of, further][order]
        self._bounds = np.searchsorted(levels[order], np.arange(int(levels.max(initial=-1)) + 2)).tolist()
        coupled = np.r_[any_of(self._codes, COUPLED), further > 0][order]
        self._coupled = {
            row: coupled[low:high] for row, (low, high) in enumerate(pairwise(self._bounds)) if coupled[low:high].any()
        }
        self._fed = [(key, row_of[stream_rows], row_of[host], row_of[places]) for key, stream_rows, host, places in fed]
        #: Per node the instruction of a pass, or else the row of its cycles among the constants.
        instructions = np.r_[np.where(self._codes < PASSES, self._instructions, -1), further - 1]
        self._pass_of = instructions[order]
        constants, constant = np.unique(np.concatenate(constants_of), return_inverse=True)
        blocked = np.r_[way_of, further]
        self._constant_of = np.where(blocked > 0, len(constants) - 1 + blocked, constant.ravel())[order]
        replicas = range(self._run.replicas)
        prices = [[self._run.send_cycles(replica, *way) for replica in replicas] for way in self._ways.tolist()]
        send_prices = np.array(prices, np.int64).reshape(len(prices), len(replicas), 2)
        self._leads = np.concatenate([np.zeros((1, len(replicas), 1), np.int64), send_prices[..., 1:]])
        self._constants = constants[:, np.newaxis, np.newaxis]
        last = {shard: outer + np.flatnonzero(ipu == shard)[-1:] for shard in self._run.plan.ipus}
        self._last = {shard: int(row_of[row[0]]) if len(row) else _BEGIN for shard, row in last.items()}
        self._loads = self._found_loads(send_prices[..., 0])

    def _found_loads(self, leads: Cycles) -> Loads:
        """Return the loads of link directions, for leads of shape (ways, replicas)."""
        run, way = self._run, self._tensors[2]
        parts = [np.zeros((5, 0), np.int64)]
        for number, key in enumerate(self._ways.tolist()):
            tensors = np.flatnonzero(way == number)
            for replica in range(run.system.replicas):
                send, place = run.costs.sends.get((replica, *key), Send()), replica % run.replicas
                lead = int(leads[number, place])
                for link in send.links:
                    numbers = np.array([link, place, lead, int(send.cycles)])
                    parts.append(np.concatenate([tensors[np.newaxis], np.repeat(numbers, len(tensors)).reshape(4, -1)]))
        loads = np.concatenate(parts, axis=1)
        return Loads(*loads[:, np.argsort(loads[1], kind="stable")])

    def carry_out(self, execution: Execution, start: Cycles) -> Mapping[int, Cycles]:
        """Return the end of every IPU's pipeline, for an execution begun in ``start``.

        Times have shape (replicas, K).
        """
        passes = execution.passes
        times = np.empty((self._outer + len(self._a), *start.shape), np.int64)
        times[_BEGIN] = start
        for key, stream_rows, *_ in self._fed:
            stream = execution.streams[key]
            times[stream_rows[0]], times[stream_rows[1:]] = stream.worked, np.stack(stream.places)
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
            times[self._outer + low : self._outer + high] = ready
            low = high
        for key, _, host, places in self._fed:
            stream = execution.streams[key]
            stream.worked = times[host]
            stream.places.extend(times[places])
        rows, leaves, way = self._tensors
        leave_times = times[self._row_of[leaves]]
        are_exact, self._loads = self._loads.are_apart(leave_times, execution.further)
        execution.exact &= are_exact
        if execution.record is not None:
            rows_of_passes = np.flatnonzero(self._pass_of >= 0)
            ends = times[self._outer + rows_of_passes]
            execution.record.note(self._pass_of[rows_of_passes], ends - weights[weight_of[rows_of_passes]], ends)
            execution.record.note(rows, leave_times, leave_times + leads[1 + way])
        return {shard: times[row] for shard, row in self._last.items()}


class Loads(NamedTuple):
    """The loads of link directions in an execution, a row per tensor, direction and replica.

    Rows are sorted by link direction; :meth:`are_apart` also sorts rows by begin and end.

    Attributes:
        tensor, link: number of the tensor, and of the link direction.
        replica: index on the axis of replicas.
        lead, cycles: cycles from the handover to the first byte, and from the first byte to the last.
    """

    tensor: Column
    link: Column
    replica: Column
    lead: Column
    cycles: Column

    def are_apart(self, leave_times: Cycles, further: Cycles) -> tuple[Mask, Loads]:
        """Return whether tensors never share a link, and the loads in order of begin.

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
        free = begins[1:] - begins[:-1] - self.cycles[:-1, np.newaxis] - further
        is_same = np.diff(self.link) == 0
        are_exact: Mask = (free[is_same] >= 0).all(axis=0)
        return are_exact


def _levels(a: Column, b: Column, outer: int) -> Column:
    """Return the level of every node: above the levels of both predecessors."""
    count = len(a)
    two_inputs = np.flatnonzero(a != b)
    source, target = np.r_[a, b[two_inputs]] - outer, np.r_[np.arange(count), two_inputs]
    source, target = source[source >= 0], target[source >= 0]
    order = np.argsort(source, kind="stable")
    target, first = target[order], np.searchsorted(source[order], np.arange(count + 1))
    input_counts = np.bincount(target, minlength=count)
    levels = np.full(count, -1)
    front, level = np.flatnonzero(input_counts == 0), 0
    while len(front):
        levels[front] = level
        begins, many = first[front], first[front + 1] - first[front]
        followers = target[np.repeat(begins - np.cumsum(many) + many, many) + np.arange(many.sum())]
        np.subtract.at(input_counts, followers, 1)
        front, level = np.unique(followers[input_counts[followers] == 0]), level + 1
    if (levels < 0).any():
        raise NotExactError("a Plan with a deadlock")
    return levels
