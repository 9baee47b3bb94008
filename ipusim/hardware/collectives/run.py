"""Execute a collective on NumPy arrays, transfer by transfer, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipusim.base.errors import ModelError, PlanError
from ipusim.hardware.collectives.collective import Collective

Array = NDArray[Any]


def run(collective: Collective, buffers: Sequence[Array], combine: np.ufunc = np.add) -> list[Array]:
    """Return the participants' buffers after ``collective``, as new arrays; ``buffers`` stay unchanged.

    Args:
        collective: collective to execute.
        buffers: an array per participant, in the order of participants, of a single dtype. For an all-gather the array
            is the participant's chunk, else a whole buffer of ``collective.elements``, in any shape.
        combine: function that merges received elements with the elements in the target's buffer; default: the sum.

    Returns:
        An array per participant. An all-reduce's result has the shape of the buffer. Other results have one dimension:
        the participant's chunk for a reduce-scatter, the whole buffer for an all-gather, the chunks from participants
        in order for an all-to-all. Sums follow the collective's order and are rounded to the dtype after every
        addition.

    Raises:
        ModelError: if arrays do not match the collective.
        PlanError: if a transfer goes beyond the ends of a buffer.
    """
    _check_buffers(collective, buffers)
    buffer_of = dict(zip(collective.participants, _whole_buffers(collective, buffers), strict=True))
    for number, transfers in enumerate(collective.rounds):
        _check_round(collective, number, buffer_of)
        # every read comes before the first write
        payloads = [buffer_of[transfer.source][transfer.start : transfer.stop].copy() for transfer in transfers]
        for transfer, payload in zip(transfers, payloads, strict=True):
            target_part = buffer_of[transfer.target][transfer.start + transfer.shift : transfer.stop + transfer.shift]
            if transfer.reduce:
                combine(target_part, payload, out=target_part, casting="same_kind")
            else:
                target_part[:] = payload
    return _results(collective, list(buffer_of.values()), buffers)


def _check_buffers(collective: Collective, buffers: Sequence[Array]) -> None:
    if len(buffers) != collective.count:
        raise ModelError(
            f"{collective.name}: expected {collective.count} buffers, one per participant, got {len(buffers)}"
        )
    for rank, (ipu, buffer) in enumerate(zip(collective.participants, buffers, strict=True)):
        chunk = collective.chunk_of(rank)
        size = chunk.stop - chunk.start if collective.operation == "all_gather" else collective.elements
        if buffer.size != size or buffer.itemsize != collective.itemsize:
            raise ModelError(
                f"{collective.name}: expected {size} elements of {collective.itemsize} bytes on IPU {ipu}, "
                f"got {buffer.size} of {buffer.itemsize}"
            )
        if buffer.dtype != buffers[0].dtype:
            raise ModelError(f"{collective.name}: expected {buffers[0].dtype} on IPU {ipu}, got {buffer.dtype}")


def _check_round(collective: Collective, number: int, buffer_of: Mapping[int, Array]) -> None:
    for transfer in collective.rounds[number]:
        for ipu, start in ((transfer.source, transfer.start), (transfer.target, transfer.start + transfer.shift)):
            if ipu not in buffer_of:
                raise PlanError(f"{collective.name}: round {number}: {transfer} is with IPU {ipu}, which takes no part")
            size = buffer_of[ipu].size
            if not 0 <= start <= start + transfer.stop - transfer.start <= size:
                raise PlanError(
                    f"{collective.name}: round {number}: {transfer} goes beyond the {size} elements on IPU {ipu}"
                )


def _whole_buffers(collective: Collective, buffers: Sequence[Array]) -> list[Array]:
    """Return a whole buffer per participant with the initial elements, zero elsewhere."""
    size = collective.count * collective.chunk if collective.operation == "all_to_all" else collective.elements
    whole_buffers = [np.zeros(size, buffer.dtype) for buffer in buffers]
    for rank, buffer in enumerate(buffers):
        position = collective.chunk_of(rank) if collective.operation == "all_gather" else slice(collective.elements)
        whole_buffers[rank][position] = buffer.ravel()
    return whole_buffers


def _results(collective: Collective, whole_buffers: Sequence[Array], buffers: Sequence[Array]) -> list[Array]:
    match collective.operation:
        case "all_reduce":
            return [whole.reshape(buffer.shape) for whole, buffer in zip(whole_buffers, buffers, strict=True)]
        case "reduce_scatter":
            return [whole[collective.chunk_of(rank)].copy() for rank, whole in enumerate(whole_buffers)]
        case "all_gather":
            return list(whole_buffers)
        case "all_to_all":
            chunks = [collective.chunk_of(rank) for rank in range(collective.count)]
            slots = (whole.reshape(collective.count, collective.chunk) for whole in whole_buffers)
            return [
                slot[:, : chunk.stop - chunk.start].ravel().copy() for slot, chunk in zip(slots, chunks, strict=True)
            ]
