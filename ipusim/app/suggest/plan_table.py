"""Plans of a suggestion as rows and as a table: the suggested plan, plans of other kinds, and the given plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ipusim.api import Sync, analysis
from ipusim.app.render.tables import Table
from ipusim.app.study.trial import Trial
from ipusim.app.suggest.choices import placement_name
from ipusim.app.suggest.suggestion import RUNNERS_UP, Suggestion, same_plan
from ipusim.base.units import format_seconds


def plan_rows(suggestion: Suggestion) -> list[dict[str, Any]]:
    """Return rows for the suggested plan, plans of other kinds, and the given plan.

    Plans of other kinds need not be the next best.
    """
    best = suggestion.trial.period / suggestion.trial.samples or Fraction(1)
    return [
        {"plan": name, **plan_columns(trial), "times_best": float(trial.period / trial.samples / best)}
        for name, trial in shown_trials(suggestion)
    ]


def plan_columns(trial: Trial) -> dict[str, Any]:
    """Return a plan's options, memory and time by column."""
    job, shape = trial.accepted_job, trial.accepted_job.program.shape
    return {
        "schedule": job.schedule.name,
        "sync": job.plan.sync.value,
        "stages": shape.positions,
        "placement": placement_name(shape.mapping),
        "ipus": len(job.plan.ipus),
        "replicas": job.system.replicas,
        "gradient_accumulation_count": accumulation_count(trial),
        "micro_batch_size": job.program.micro_batch_size,
        "recompute": "apart" if shape.recompute else "inside" if shape.recompute_inline else "no",
        "peak_bytes": job.memory.fullest.bytes if job.describes_memory else None,
        "sram_bytes": job.memory.sram_bytes,
        "fits": str(trial.fits),
        "weight_update_period_s": update_seconds(trial),
    }


def plan_table(suggestion: Suggestion) -> Table:
    """Return the plans as a table; sync mode, placement and size of micro-batches if plans differ in them."""
    rows = plan_rows(suggestion)
    several, places, sizes = (_differ(rows, key) for key in ("sync", "placement", "micro_batch_size"))
    period = "per update" if suggestion.job.program.shape.training else "per execution"
    cells = (
        {
            "plan": row["plan"],
            "schedule": f"{row['schedule']} in {Sync(row['sync']).words}" if several else row["schedule"],
            "stages": str(row["stages"]),
            **({"placement": row["placement"]} if places else {}),
            "IPUs": f"{row['ipus']}x{row['replicas']}",
            "count": f"{row['gradient_accumulation_count']}" + f" of {row['micro_batch_size']}" * sizes,
            "recompute": row["recompute"],
            "memory": _memory_text(row),
            period: format_seconds(row["weight_update_period_s"]),
            "ratio": f"{row['times_best']:.3f}",
        }
        for row in rows
    )
    return Table.of("Plans, each simulated", cells)


def _memory_text(row: Mapping[str, Any]) -> str:
    """Return the used share of memory, with a verdict other than that it fits; without limit, the verdict."""
    if None in (row["peak_bytes"], row["sram_bytes"]):
        return str(row["fits"])
    share = f"{row['peak_bytes'] / row['sram_bytes']:.0%}"
    return share if row["fits"] == analysis.Fits.YES else f"{share}, {row['fits']}"


def _differ(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return len({row[key] for row in rows}) > 1


def legend(suggestion: Suggestion) -> str:
    """Return the meaning of the rows and columns of :func:`plan_table`."""
    rows = plan_rows(suggestion)
    words = {"sync": "sync mode", "placement": "placement", "micro_batch_size": "micro-batch size"}
    more = "".join(f"{name}, " for key, name in words.items() if _differ(rows, key))
    placement = "Column placement: IPUs of the stages in order: straight (0,1, or 0,0 on one IPU), returning (0,1,0), "
    placement += "around (0,1,0,1), there_and_back (0,1,1,0), or given. "
    count = "Column count: micro-batches of a weight update, and samples of each. "
    misfits = [
        word for word in (analysis.Fits.NO, analysis.Fits.WITHOUT_CODE) if any(row["fits"] == word for row in rows)
    ]
    quoted = " or ".join(f'"{word}"' for word in misfits)
    verdict = f", with {quoted} if the plan is too large" if misfits else ""
    return (
        f"Rows named other: plans with another schedule, {more}number of IPUs or recomputation. "
        f"{placement * _differ(rows, 'placement')}Column IPUs: IPUs per replica, times the number of replicas. "
        f"{count * _differ(rows, 'micro_batch_size')}Column recompute: before each backward pass (apart) or within it "
        f"(inside). Column memory: used share of the memory of the fullest IPU{verdict}. "
        "Column ratio: time per sample divided by the best plan's."
    )


def shown_trials(suggestion: Suggestion) -> list[tuple[str, Trial]]:
    """Return the plans of the table with their names."""
    trials = [("best", suggestion.trial)] if suggestion.trial is not suggestion.given_trial else []
    trials += [("other", trial) for trial in other_trials(suggestion)]
    return trials if suggestion.given_trial.job is None else [*trials, ("given", suggestion.given_trial)]


def other_trials(suggestion: Suggestion) -> list[Trial]:
    """Return good plans of kinds other than the suggested and given plans."""
    trials = [plan.trial for plan in suggestion.searched.best_plans if plan is not suggestion.plan]
    return [trial for trial in trials if not same_plan(trial.job, suggestion.given_trial.job)][:RUNNERS_UP]


def accumulation_count(trial: Trial) -> int:
    """Return the number of micro-batches that a plan accumulates for a weight update."""
    return trial.accepted_job.request.options.pipeline.gradient_accumulation_count


def update_seconds(trial: Trial) -> float:
    """Return a plan's time per weight update in seconds; of inference, per execution."""
    return trial.throughput.weight_update_period_s


def samples_per_second(trial: Trial) -> float | None:
    """Return a plan's throughput in samples per second; None for a plan without time."""
    return trial.throughput.samples_per_s or None
