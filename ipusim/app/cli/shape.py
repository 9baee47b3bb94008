"""Plan a schedule from command-line options, without a scenario; and list all schedules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ipusim.api import Plan, Schedule, Sync, pipelines, rules, runs, schedules
from ipusim.base.errors import CountError, OptionError, PlanError, ProgramError, as_option_error
from ipusim.base.near_names import did_you_mean

#: Maximum number of operations of a readable grid.
_MOST_OPERATIONS: Final = 1_000_000
_IPU: Final = re.compile(r"[0-9]{1,3}")


def plan_for(
    schedule: str,
    stages: int | None,
    count: int | None,
    mapping: str | None,
    inference: bool,
    recompute: bool,
    sync: str | None = None,
) -> Plan:
    """Plan ``schedule`` for a number of stages or for a mapping.

    By default there are two IPUs, each with the schedule's number of stages. A mapping lists IPUs by stage: ``0,1,0``;
    concurrent stages share a position: ``0,1+2,3``. ``count`` is the gradient accumulation count, by default the
    smallest legal count. An Order from a file defines stages, mapping and count itself. The default sync mode is the
    schedule's.

    Raises:
        ProgramError: for a mapping or number of stages that does not fit the schedule.
        CountError: for an illegal count, with the nearest legal counts.
        OptionError: for an unknown schedule, an unreadable mapping, or an oversized grid.
        FileError: if a file cannot be read as a schedule.
        ModelError: if a Python file defines no schedule.
        PlanError: for an Order that breaks a rule.
    """
    with as_option_error("schedule", ProgramError):
        named_schedule = schedules.schedule_of(schedule, Path())
    mode = _sync(sync)
    ipus, sizes = _mapping(mapping, stages, named_schedule)
    training = not inference and schedules.Feature.TRAINING in named_schedule.supports
    has_recompute = recompute and training
    recompute_mode = next(iter(named_schedule.recomputation_modes), rules.THEN_BACKPROPAGATE)
    shape = pipelines.PlanShape(
        mapping=ipus,
        micro_batches=1,
        training=training,
        recompute=has_recompute and recompute_mode == rules.THEN_BACKPROPAGATE,
        recompute_inline=has_recompute and recompute_mode == rules.INTERLEAVED,
        sizes=sizes,
        mirrored=named_schedule.mirrored,
        segments=named_schedule.segments,
    )
    number = named_schedule.count_step(shape) if count is None else count
    if abs(number) * shape.steps > _MOST_OPERATIONS:
        text = f"expected at most {_MOST_OPERATIONS} operations, the limit of a readable grid, got"
        raise OptionError("count", f"{text} {runs.show(number)} x {shape.steps}")
    shape = replace(shape, micro_batches=number * shape.segments)
    try:
        plan = runs.plan_of(named_schedule, shape, mode)
    except CountError as error:
        legal = () if named_schedule.file_shape is not None else runs.nearest_counts(named_schedule, shape, mode)
        if not legal:
            raise
        if count is not None:
            raise CountError(f"{error} Nearest legal counts: {' or '.join(map(str, legal))}.") from None
        plan = runs.plan_of(named_schedule, replace(shape, micro_batches=legal[0] * shape.segments), mode)
    pipelines.check_plan(plan)
    return plan


def as_text(plan: Plan, form: str) -> str:
    """Return a Plan as ``grid``, ``instructions`` (a line per IPU) or ``torch`` (torch's CSV).

    Raises OptionError for another form, and PlanError for passes that the form cannot express.
    """
    forms: dict[str, Callable[[], str]] = {
        "grid": lambda: pipelines.format_grid(plan),
        "instructions": plan.listing,
        "torch": lambda: schedules.write_torch_csv(plan.order),
    }
    if form not in forms:
        raise OptionError("as", f"expected {runs.one_of(forms)}, got {runs.show(form)}{did_you_mean(form, forms)}")
    return forms[form]()


def blocking_text(name: str) -> str:
    """Return a sentence: whether a schedule file's ranks hang with blocking sends.

    Raises OptionError unless the schedule is a CSV file, PlanError with each rank of a hang, and FileError.
    """
    if not name.endswith(".csv"):
        raise OptionError("blocking", f"expected a schedule as FILE.csv, got {runs.show(name)}")
    if hang := schedules.hang_when_blocking(Path(name), name):
        raise PlanError(f"{name}: with sends that block, ranks hang: {hang}")
    return f"{name}: with sends that block, every send meets its receive."


def schedule_lines() -> Iterator[str]:
    """Yield lines on each schedule: description, sync modes (default first), and features."""
    for entry in map(schedules.find, schedules.names()):
        yield f"{entry.name:16} {entry.summary}"
        yield f"{'':16} sync: {', '.join(entry.syncs)}"
        yield f"{'':16} supports: {', '.join(feature for feature in schedules.Feature if feature in entry.supports)}"


def _sync(text: str | None) -> Sync | None:
    if text is None:
        return None
    try:
        return Sync(text.lower())
    except ValueError:
        modes = [mode.value for mode in Sync]
        message = f"expected {runs.one_of(modes)}, got {runs.show(text)}{did_you_mean(text, modes)}"
        raise OptionError("sync", message) from None


def _mapping(text: str | None, stages: int | None, schedule: Schedule) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if text is None:
        if schedule.file_shape is not None:
            has_file_stages = stages in (None, schedule.file_shape.stages)
            return (schedule.file_shape.mapping if has_file_stages else tuple(range(stages or 0))), ()
        return schedule.mapping(2 * schedule.per_ipu if stages is None else stages), ()
    words = text.replace("+", ",").split(",")
    if not all(_IPU.fullmatch(word.strip()) and int(word) < runs.MAX_STAGES for word in words):
        expected = f"expected IPUs below {runs.MAX_STAGES}, separated by commas, such as 0,1,0"
        raise OptionError("mapping", f"{expected}, got {runs.show(text)}")
    if len(words) > runs.MAX_STAGES:  # same limit as for --stages
        raise OptionError("mapping", f"expected at most {runs.MAX_STAGES} stages, got {len(words)}")
    positions = text.count(",") + 1
    if stages is not None:
        with as_option_error("mapping", ProgramError):
            rules.check_mapping(positions, stages)
    return pipelines.parse_mapping(text)
