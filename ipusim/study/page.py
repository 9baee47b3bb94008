"""Run folders as one page to look at, and to send to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ipusim.analysis.causes import CAUSES, IdleCauses, idle_causes
from ipusim.analysis.critical_path import Rows, critical_path, path_parts
from ipusim.errors import FileError, TimelineError
from ipusim.files import open_file
from ipusim.pipeline.holders import Holder
from ipusim.render.page.page import html_page
from ipusim.render.page.run import Bars, Figure, HeldMemory, PageRun, run_data, table_data, tables_of_looks
from ipusim.render.tables import Table
from ipusim.scenario.source import MAX_BYTES
from ipusim.study.memory_file import read_memory
from ipusim.study.page_tables import part_words, run_tables
from ipusim.study.stored import StoredRun, read_run
from ipusim.study.versions import versions
from ipusim.timeline.kinds import LOOKS
from ipusim.units import format_bytes, format_seconds

#: What the page is called in a run folder.
PAGE: Final = "report.html"
_MEMORY_FILE, _SCENARIO_FILE = "memory.npz", "scenario.yaml"
_NO_SCENARIO: Final = "The folder holds no scenario: a program asked for this run, or an older ipusim wrote it."
_NO_MEMORY: Final = (
    "Not known: the stages of this run do not say what they hold, or an older ipusim wrote its folder, without "
    "memory.npz."
)
#: How arithmetic looks in bars: as forward passes do.
_BUSY: Final = replace(LOOKS[0], name="arithmetic")
#: Names of that many runs stand in the title of a page of several.
_NAMED: Final = 3


def report_page(folders: Sequence[Path]) -> bytes:
    """Return the page of the runs in ``folders``, in their order; the same runs give the same bytes.

    Raises FileError for what is no run folder and for a file that is not what it should be, TimelineError for a
    damaged Timeline, and OSError for what cannot be read.
    """
    stored = [read_run(folder) for folder in folders]
    runs = [_page_run(each) for each in stored]
    data, contents = zip(*map(run_data, runs), strict=True)
    title = runs[0].title if len(runs) == 1 else f"{len(runs)} runs: {_names(stored)}"
    overview = table_data(_overview(runs)) if len(runs) > 1 else None
    made = " ".join(versions())
    return html_page(
        title, {"title": title, "made": made, "overview": overview, **tables_of_looks(), "runs": data}, contents
    )


def _names(runs: Sequence[StoredRun]) -> str:
    names = [*dict.fromkeys(run.times.name for run in runs)]
    return ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")


def _overview(runs: Sequence[PageRun]) -> Table:
    """Return the first numbers of every run, a row each."""
    labels = [*dict.fromkeys(figure.label for run in runs for figure in run.figures)]
    rows = tuple(
        (run.title, *({figure.label: figure.value for figure in run.figures}.get(label, "-") for label in labels))
        for run in runs
    )
    return Table("Runs", ("run", *labels), rows)


def _page_run(run: StoredRun) -> PageRun:
    timeline, times = run.timeline, run.times
    causes, (path, no_path) = idle_causes(timeline), _path(run)
    try:
        memory, no_memory = _memory(run)
        tables = run_tables(run, causes, path)
        figures = _figures(run)
        notes = tuple((str(note), False) for note in run.summary["notes"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FileError):
            raise
        summary = run.folder / "summary.json"
        raise FileError(f"{summary}: expected the summary of a run as ipusim writes it, got {error!r}") from None
    return PageRun(
        title=f"{times.name}: {times.order_and_sync} on {times.system}",
        description=run.summary["description"],
        timeline=timeline,
        figures=figures,
        verdict=_verdict(causes, path, run),
        notes=(*notes, *((text, True) for text in [no_path] if text)),
        memory=memory,
        no_memory=no_memory,
        path=path,
        bars=(_bars(causes),),
        tables=tables,
        scenario=_scenario(run.folder),
    )


def _figures(run: StoredRun) -> tuple[Figure, ...]:
    times, memory = run.times, run.summary["memory"]
    rates = times.throughput
    what = "weight update" if times.training else "execution"
    figures = [
        Figure(f"time per {what}", format_seconds(rates.weight_update_period_s), f"{times.order_and_sync}"),
        Figure("throughput", f"{rates.samples_per_s:,.0f} samples/s", f"{rates.effective_batch_size:,} in each {what}"),
        Figure("utilisation", f"{times.utilisation:.1%}", "arithmetic / (IPUs × makespan)"),
        Figure("bubble", f"{times.bubble.idle_fraction:.1%}", "idle / (IPUs × makespan)"),
    ]
    if (run.folder / _MEMORY_FILE).exists():
        fullest = max(memory["ipus"], key=lambda ipu: int(ipu["peak_bytes"]))
        limit = memory["sram_bytes"]
        of = f"{fullest['peak_bytes'] / limit:.1%} of {format_bytes(limit)}" if limit else "not limited"
        fits = "" if memory["fits"] else ", does not fit"
        figures.append(
            Figure("fullest memory", format_bytes(fullest["peak_bytes"]), f"IPU {fullest['ipu']}, {of}{fits}")
        )
    return tuple(figures)


def _verdict(causes: IdleCauses, path: Rows | None, run: StoredRun) -> tuple[str, ...]:
    """Return in words where the time of the IPUs goes, and what the run is as long as."""
    whole = causes.window_cycles * len(causes.busy)
    shares = sorted(zip(causes.cycles.sum(axis=0).tolist(), causes.causes, strict=True), reverse=True)
    most = ", ".join(f"{name} {cycles / whole:.1%}" for cycles, name in shares[:3] if cycles)
    lines = [f"IPUs compute {causes.busy.sum() / whole:.1%} of their time" + (f"; else: {most}." if most else ".")]
    if path is not None:
        parts = path_parts(run.timeline, path)[:3]
        words = ", ".join(f"{part_words(run, part)} {part.cycles / causes.window_cycles:.1%}" for part in parts)
        lines.append(f"The critical path, as long as the run, is mostly: {words}.")
    return tuple(lines)


def _path(run: StoredRun) -> tuple[Rows | None, str]:
    """Return the critical path, or why there is none."""
    try:
        return critical_path(run.timeline), ""
    except TimelineError as error:
        return None, f"The critical path cannot be shown: {error}"


def _bars(causes: IdleCauses) -> Bars:
    looks = (_BUSY, *(cause.value for cause in CAUSES))
    rows = tuple(
        (f"IPU {ipu}", (busy, *idle))
        for ipu, (busy, idle) in enumerate(zip(causes.busy.tolist(), causes.cycles.tolist(), strict=True))
    )
    return Bars("Why IPUs are idle", looks, rows, causes.window_cycles)


def _memory(run: StoredRun) -> tuple[HeldMemory | None, str]:
    """Return what IPUs hold over time, or why that is not known."""
    path, said = run.folder / _MEMORY_FILE, run.summary["memory"]
    if not path.exists():
        return None, _NO_MEMORY
    curves = read_memory(path, len(run.timeline.info.ipus))
    held = {ipu["ipu"]: {holder: int(ipu["holders"][holder]) for holder in Holder} for ipu in said["ipus"]}
    holders = tuple(held[curve.ipu % run.timeline.info.shards] for curve in curves)
    limit = None if said["sram_bytes"] is None else int(said["sram_bytes"])
    return HeldMemory(curves, holders, limit, said["fits"], said["verdict"]), ""


def _scenario(folder: Path) -> str:
    """Return the scenario of a run as it stands in its folder."""
    path = folder / _SCENARIO_FILE
    if not path.exists():
        return _NO_SCENARIO
    with open_file(path) as file:
        return file.read(MAX_BYTES).decode("utf-8", "replace")
