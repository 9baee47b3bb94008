"""Which bytes go from which IPU to which when the tensors of one step move to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ipusim.hardware.system import System
from ipusim.pipeline.plan import Edge
from ipusim.pipeline.program import PipelineProgram


class StageCopy(NamedTuple):
    """One stage's tensor on its way to another stage: stage numbers, and bytes of one micro-batch."""

    source: int
    target: int
    bytes: int


def stage_copies(program: PipelineProgram, edge: Edge) -> Iterator[StageCopy]:
    """Yield what moves along ``edge`` for one micro-batch, within an IPU or across.

    Every stage of a step sends to every stage of the next. The last forward hands nothing
    over to the first backward: both are the same stage's.
    """
    shape = program.shape
    for source in shape.stages_of_step(edge.source_step):
        for target in shape.stages_of_step(edge.target_step):
            size = 0 if edge.source_step == shape.positions - 1 else program.sent_bytes(source, target)
            yield StageCopy(source, target, size)


def traffic(program: PipelineProgram, edges: Sequence[Edge], system: System) -> dict[tuple[int, int], int]:
    """Return the bytes that cross from each logical IPU to each other one when all ``edges`` are copied.

    Every replica of ``system`` copies its own.
    """
    mapping = program.shape.mapping
    total: dict[tuple[int, int], int] = {}
    for edge in edges:
        for copy in stage_copies(program, edge):
            source, target = mapping[copy.source], mapping[copy.target]
            if source != target:
                for first in range(0, system.count, system.shards):
                    pair = first + source, first + target
                    total[pair] = total.get(pair, 0) + copy.bytes
    return total
