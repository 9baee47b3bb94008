"""Scenarios of the benchmarks."""

from __future__ import annotations


def timed_stages(system: str, stages: int, count: int, memory: bool = True) -> str:
    """Return a scenario of so many stages on as many IPUs, known by their cycles and, of ``memory``, by their bytes."""
    held = ", parameter_bytes: 4 KiB, stash_bytes: 4 KiB" if memory else ""
    lines = (
        f"    - {{name: s{stage}, forward: {1000 + stage % 7}, backward: 2000, update: 100, "
        f"output_bytes: 4 KiB, gradient_bytes: 4 KiB{held}}}\n"
        for stage in range(stages)
    )
    return (
        f"system: {{name: {system}, auto_select_ipus: {stages}}}\n{'memory: report' if memory else ''}\n"
        f"pipeline:\n  schedule: grouped\n  gradient_accumulation_count: {count}\n  stages:\n" + "".join(lines)
    )
