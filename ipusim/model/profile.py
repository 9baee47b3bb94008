"""What one computational stage asks of an IPU for one micro-batch: arithmetic, memory traffic, exchange.

A profile knows shapes, not time: :mod:`ipusim.model.cost` turns it into cycles
on a given IPU.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """The work of one layer in one pass over one micro-batch.

    Attributes:
        macs: multiply-accumulates that the matrix unit (AMP) can take.
        flops: other floating-point operations, done by the vector units.
        sram_bytes: bytes read from and written to tile memory.
        exchange_bytes: bytes that tiles receive over the on-chip exchange.
        itemsize: bytes of one element, which sets the arithmetic rate (2 or 4; 8 counts as 4).
        supersteps: bulk-synchronous steps that must follow each other, each with a sync of its own.
    """

    macs: int = 0
    flops: int = 0
    sram_bytes: int = 0
    exchange_bytes: int = 0
    itemsize: int = 4
    supersteps: int = 1


#: What a pass costs: the work of each of its layers in turn, or cycles as measured.
PassCost = tuple[Work, ...] | int


@dataclass(frozen=True)
class StageProfile:
    """One computational stage as the machine sees it, for one micro-batch.

    Attributes:
        name: the stage's name in charts and messages.
        forward, backward: cost of one pass over one micro-batch.
        update: cost of the weight update of the stage's parameters, once per execution of the pipeline.
        output_bytes: bytes that leave the stage for the next one (activations, and labels on their way).
        gradient_bytes: bytes of the gradient of the stage's input, which go back to the stage before.
        parameter_bytes: bytes of the stage's weights.
    """

    name: str
    forward: PassCost
    backward: PassCost = 0
    update: PassCost = 0
    output_bytes: int = 0
    gradient_bytes: int = 0
    parameter_bytes: int = 0
