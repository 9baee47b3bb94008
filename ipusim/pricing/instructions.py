"""Instructions that have a law of their own: what each costs, and how often it is run."""

from __future__ import annotations

from collections import Counter

from ipusim.hardware.system import System
from ipusim.pipeline.instructions import COLUMNS, Code
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import laws


def instruction_cycles(plan: Plan, program: PipelineProgram, system: System) -> dict[tuple[int, int], int]:
    """Return the cycles of each (code, stage) of ``plan`` that a law prices alone; stage -1 where it has none."""
    return {
        (code, stage): law(law.cycles(program, system, stage))
        for code, law in laws.OF_INSTRUCTIONS.items()
        if law.cycles is not None
        for stage in sorted(instructions_of(plan, code))
    }


def instructions_of(plan: Plan, code: Code) -> Counter[int]:
    """Return how many instructions of a code each stage has in a replica; those of stage -1 have none."""
    table = plan.instructions
    return Counter(table[table[:, COLUMNS.index("code")] == code, COLUMNS.index("stage")].tolist())
