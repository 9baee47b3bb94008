"""Divide a stage's forward pass at recomputation checkpoints.

A stage keeps the values of checkpoints, and recomputes everything between checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ipusim.ipu.graph.cut import StageCut
from ipusim.ipu.graph.node import Graph, Output, reach

#: Attribute marking a checkpoint node; numbers increase along the forward pass.
CHECKPOINT: Final = "_ipusim_checkpoint"


@dataclass(frozen=True, eq=False)
class Sections:
    """Forward pass of a stage, divided at checkpoints.

    Attributes:
        names: node names per section, in order. No checkpoint follows the last section.
        values: tensors of each checkpoint; checkpoint i ends section i.
    """

    names: tuple[frozenset[str], ...]
    values: tuple[tuple[Output, ...], ...]

    def section_of(self, name: str) -> int:
        """Return a node's section number; -1 for nodes of other passes."""
        return next((number for number, names in enumerate(self.names) if name in names), -1)


def sections_of(graph: Graph, stage_cut: StageCut) -> Sections | None:
    """Return a stage's forward pass divided at checkpoints, or None for a stage without checkpoints.

    Args:
        graph: the graph.
        stage_cut: the stage.
    """
    stage_names = set(stage_cut.forward)
    marks: dict[int, list[str]] = {}
    for name in stage_cut.forward:
        number = graph.nodes[name].attributes.get(CHECKPOINT)
        if number is not None:
            marks.setdefault(int(number), []).append(name)
    if not marks:
        return None
    ancestors: set[str] = set()
    names = []
    for number in sorted(marks):
        section = _ancestors(graph, marks[number], stage_names - ancestors)
        ancestors |= section
        names.append(frozenset(section))
    values = tuple(tuple(Output(name, 0) for name in marks[number]) for number in sorted(marks))
    return Sections((*names, frozenset(stage_names - ancestors)), values)


def _ancestors(graph: Graph, names: Sequence[str], candidates: set[str]) -> set[str]:
    """Return the named nodes with all their ancestors, among the candidates."""
    return reach(candidates.intersection(names), lambda name: candidates.intersection(graph.nodes[name].sources))
