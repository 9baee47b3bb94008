"""Work that is not counted: passes whose cycles were measured, and passes made of others."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.model.profile import Work


@dataclass(frozen=True)
class MeasuredWork(Work):
    """A layer's pass whose cycles were measured: they are taken as they are, on any IPU."""

    cycles: int = 0


@dataclass(frozen=True)
class WorkSequence(Work):
    """A layer's pass that is made of other layers' passes; the other fields are the sums of theirs."""

    parts: tuple[Work, ...] = ()


def in_turn(parts: tuple[Work, ...], itemsize: int) -> WorkSequence:
    """Return ``parts`` as one pass, which costs what they cost one after another."""
    return WorkSequence(
        products=tuple(product for work in parts for product in work.products),
        flops=sum(work.flops for work in parts),
        sram_bytes=sum(work.sram_bytes for work in parts),
        exchange_bytes=sum(work.exchange_bytes for work in parts),
        itemsize=itemsize,
        supersteps=sum(work.supersteps for work in parts),
        parts=parts,
    )
