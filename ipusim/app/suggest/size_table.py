"""Best plan for each number of IPUs as rows and as a table."""

from __future__ import annotations

from typing import Any

from ipusim.api import runs
from ipusim.app.render.tables import Table
from ipusim.app.suggest.plan_table import plan_columns, samples_per_second
from ipusim.app.suggest.suggestion import Outcome, Suggestion
from ipusim.base.units import format_seconds, throughput_text


def size_rows(suggestion: Suggestion) -> list[dict[str, Any]]:
    """Return a row for each number of IPUs of the limits: the best plan, or the reason for a missing plan.

    Limits with fewer than two numbers of IPUs have no rows.
    """
    rows: list[dict[str, Any]] = []
    for size, found in suggestion.by_ipus.items():
        row: dict[str, Any] = {"device_ipus": size}
        if isinstance(found, str):
            row |= {"outcome": "refused", "why_none": found}
        elif found.outcome is not Outcome.PLAN:
            row |= {"outcome": found.outcome.value, "why_none": found.why_none}
        else:
            row |= {
                "outcome": found.outcome.value,
                **plan_columns(found.trial),
                "samples_per_s": samples_per_second(found.trial),
                "proven": found.searched.skipped_bound is None,
                "gap": found.gap,
                "changes": runs.plain(found.changes),
            }
        rows.append(row)
    return rows


def size_table(suggestion: Suggestion) -> Table:
    """Return the best plan for each searched number of IPUs as a table."""
    cells = []
    for row in size_rows(suggestion):
        if row["outcome"] != Outcome.PLAN.value:
            cells.append((str(row["device_ipus"]), row["outcome"], *[""] * 6))
            continue
        proof = "none, proven" if row["proven"] else f"at most {row['gap']:.1%}"
        cells.append(
            (
                str(row["device_ipus"]),
                row["schedule"],
                str(row["stages"]),
                f"{row['ipus']}x{row['replicas']}",
                f"{row['gradient_accumulation_count']} of {row['micro_batch_size']}",
                format_seconds(row["weight_update_period_s"]),
                throughput_text(row["samples_per_s"]),
                proof,
            )
        )
    period = "per update" if suggestion.job.program.shape.training else "per execution"
    header = ("IPUs", "schedule", "stages", "used", "count", period, "throughput", "possible gain")
    return Table("Best plan for each number of IPUs, searched one after another", header, tuple(cells))
