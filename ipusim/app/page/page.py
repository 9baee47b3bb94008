"""Write the report page of run folders, self-contained for sharing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ipusim.api import analysis, pipelines, timelines
from ipusim.app.explain.explanation import Explanation, explain
from ipusim.app.page.page_tables import folder_tables
from ipusim.app.render.page.page import html_page
from ipusim.app.render.page.played import played_data
from ipusim.app.render.page.run import bars_data, memory_row, micro, table_data, tables_of_looks, trace_data
from ipusim.app.render.shortened import in_periods, left_out
from ipusim.app.render.tables import Table, ipu_table, summary_table
from ipusim.app.render.verdict import one_ipu_words, used_ipus
from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.app.run_folder.output_file import PAGE as PAGE_FILE
from ipusim.app.run_folder.output_file import check_output
from ipusim.app.run_folder.stored import StoredRun, read_run
from ipusim.app.run_folder.versions import versions
from ipusim.app.scenario.write import SCENARIO_FILE
from ipusim.base.errors import FileError, OptionError, OutputError
from ipusim.base.files import MAX_SCENARIO_BYTES, has_run_file, read_run_file, write_file
from ipusim.base.looks import key_of
from ipusim.base.units import format_bytes, format_seconds, noun_with_numbers

#: File name of the page.
PAGE: Final = "report.html"
#: File name of the page with autoplay.
PLAY: Final = "play.html"
_NO_SCENARIO: Final = "The folder holds no scenario: a program started this run, or an older ipusim wrote the folder."
_NOT_EXPLAINED: Final = ("This folder has no explanation: ipusim explain tries changes and writes the best here.",)
_NO_MEMORY: Final = (
    "Not known: the memory of the stages is not known, or an older ipusim wrote this folder without memory.npz."
)
#: Maximum number of memory changes shown in full; of more changes, only the first and last periods are shown.
_MOST_ENTRIES: Final = 400_000
#: Maximum number of runs animated together; more runs would be illegibly small.
MOST_PLAYED_RUNS: Final = 2
#: Maximum number of runs named in a page's title.
_MOST_NAMED_RUNS: Final = 3


def report_page(folders: Sequence[Path], *, play: bool = False, title: str = "") -> bytes:
    """Return the page of the runs in ``folders``, in order; equal runs give equal bytes.

    With ``play``, the page starts its animation when opened. The headline is ``title``, or if empty the runs' names,
    schedules and systems. Raises FileError for a path without a run and for
    malformed files, TimelineError for a damaged Timeline, OSError for unreadable files, and, with ``play``, OutputError
    for an execution that cannot be animated.
    """
    return _page([read_run(folder) for folder in folders], title, play=play)


def _page(runs: Sequence[StoredRun], title: str, *, play: bool) -> bytes:
    titles = _titles(runs)
    data, packed_columns = zip(*map(_run_data, runs, titles), strict=True)
    title = title or (titles[0] if len(titles) == 1 else f"{len(titles)} runs: {_names(runs)}")
    overview = table_data(_overview(runs, titles)) if len(titles) > 1 else None
    page = {"title": title, "made": " ".join(versions()), "overview": overview, **tables_of_looks(), "runs": data}
    try:
        executions, played_columns = _play_data(runs, play=play)
    except OutputError as error:
        if play:
            raise
        return html_page(title, {**page, "played": [], "unplayable": str(error)}, packed_columns)
    return html_page(title, {**page, "played": executions, "plays": play}, [*packed_columns, *played_columns])


def _play_data(runs: Sequence[StoredRun], *, play: bool) -> tuple[Sequence[dict[str, Any]], Sequence[str]]:
    """Return first executions as data and packed columns for an animation.

    Raises OutputError if the runs cannot be animated together.
    """
    if len(runs) > MOST_PLAYED_RUNS and not play:
        raise OutputError(f"expected one or two runs to play, got {len(runs)}")
    data, columns = zip(*(played_data(run.timeline, _stash_bytes(run)) for run in runs), strict=True)
    return data, columns


def _stash_bytes(run: StoredRun) -> tuple[int, ...] | None:
    """Return the bytes that stages keep for a micro-batch; None if unknown."""
    if not run.describes_memory:
        return None
    with run.malformed_as_file_error():
        sizes = tuple(int(stage["kept_bytes"]) for stage in run.summary["memory"]["stages"])
    if len(sizes) != len(run.timeline.info.stages):
        raise FileError(
            f"{run.folder / 'summary.json'}: expected the memory of every stage, got the memory of {len(sizes)} stages"
        )
    return sizes


def _titles(runs: Sequence[StoredRun]) -> list[str]:
    """Return the title of every run; equal titles get the folder appended."""
    titles = [f"{run.times.name}: {run.times.order_and_sync} on {run.times.system}" for run in runs]
    counts = Counter(titles)
    return [f"{title}, {run.folder}" if counts[title] > 1 else title for title, run in zip(titles, runs, strict=True)]


def write_page(folders: Sequence[Path], out: Path | None = None, *, play: bool = False, title: str = "") -> Path:
    """Write the page of runs, by default into their first folder, and return its path.

    The next run in this folder removes the page.

    Args:
        folders: run folders; with ``play`` at most two.
        out: path of the page; None for the first folder.
        play: whether the page, when opened, animates the first execution of each run.
        title: headline of the page; empty for the runs' names, schedules and systems.

    Raises FileError for a path without a run and for malformed files, TimelineError for a damaged Timeline, OSError for
    unreadable files, OptionError for too many runs to animate, and OutputError for an unwritable page and, with
    ``play``, for an execution that cannot be animated.
    """
    if not folders:
        raise FileError("expected at least one folder of a run, got none")
    if play and len(folders) > MOST_PLAYED_RUNS:
        raise OptionError("play", f"expected one or two runs to play, got {len(folders)}")
    if out is not None:
        check_output(out, PAGE_FILE)
        write_file(out, report_page(folders, play=play, title=title))
        return out
    folder_runs, name = [read_run(folder) for folder in folders], PLAY if play else PAGE
    with ResultsFolder(folders[0], (name,)) as results:
        results.write({name: _page(folder_runs, title, play=play)})
    return folders[0] / name


def _names(runs: Sequence[StoredRun]) -> str:
    names = [*dict.fromkeys(run.times.name for run in runs)]
    return ", ".join(names[:_MOST_NAMED_RUNS]) + (" and others" if len(names) > _MOST_NAMED_RUNS else "")


def _overview(runs: Sequence[StoredRun], titles: Sequence[str]) -> Table:
    """Return the headline figures by run, with a note on different sync modes."""
    cells = [
        {label: table_text[0] if table_text else value for label, value, _, *table_text in _figures(run)}
        for run in runs
    ]
    labels = [*dict.fromkeys(label for row in cells for label in row)]
    rows = tuple((title, *(row.get(label, "-") for label in labels)) for title, row in zip(titles, cells, strict=True))
    note = pipelines.idealised(run.times.sync for run in runs)
    return Table(". ".join(filter(None, ["Runs", note.rstrip(".")])), ("run", *labels), rows)


def _run_data(run: StoredRun, title: str) -> tuple[dict[str, Any], str]:
    """Return a run's JSON data and packed columns."""
    timeline, times = in_periods(run.timeline), run.times
    no_job = "a page does not try changes"
    explanation = explain(run.timeline, no_job, waterfall=run.waterfall, shares=run.recomputed_shares)
    path = (analysis.critical_path_of(timeline) if run.timeline.repeats else explanation.path).rows
    gaps = tuple(left_out(timeline))
    with run.malformed_as_file_error():
        curves = _curves(run)
        notes = [*map(str, run.summary["notes"]), *filter(None, [run.version_note])]
        notes += [
            f"Cycles {gap.start:,} to {gap.end:,} are not drawn: {gap.words}, each like the parts before and after."
            for gap in gaps
        ]
        no_memory = run.summary["memory"]["verdict"] if run.fits is analysis.Fits.UNKNOWN else _NO_MEMORY
        data = {
            "title": title,
            "description": run.summary["description"],
            "figures": [
                {"label": label, "value": micro(value), "note": micro(note)} for label, value, note, *_ in _figures(run)
            ],
            "waterfall": _waterfall(run),
            "verdict": list(_verdict(run, explanation)),
            "notes": notes,
            "gaps": [{"start": gap.start, "end": gap.end, "words": gap.words} for gap in gaps],
            "spans": run.timeline.spans_in_all,
            "fits": run.fits,
            "memory": _memory(run, curves) if curves else None,
            "no_memory": "" if curves else str(no_memory),
            "bars": _bars(explanation, times.clock_hz),
            "tables": [
                *map(table_data, (summary_table(times), ipu_table(times), *explanation.tables(), *folder_tables(run)))
            ],
            "scenario": _scenario(run.folder),
        }
    trace, columns = trace_data(timeline.without_copies(), path, curves)
    return {**data, **trace}, columns


def _figures(run: StoredRun) -> Iterator[tuple[str, ...]]:
    """Yield label, value and note of each headline figure, and its text in a table of runs if this differs.

    Folders written by older versions have no parts of the time; such figures are omitted.
    """
    times, verdict = run.times, run.summary.get("verdict")
    rates, period = times.throughput, times.period
    synthetic = ", synthetic data" if key_of(analysis.SYNTHETIC_DATA) in run.summary["options"] else ""
    yield (f"time per {period}", format_seconds(rates.weight_update_period_s), times.order_and_sync)
    yield (
        "throughput",
        rates.words,
        f"{rates.effective_batch_size:,} per {period}{synthetic}",
    )
    if run.waterfall is not None:
        useful = timelines.TimePart.USEFUL
        yield (useful.words, f"{run.waterfall.share(useful):.1%}", "of the time")
        largest = next(run.waterfall.largest(), None)
        if largest is not None:
            part, share = largest[0].words, f"{largest[1]:.1%}"
            yield ("most of the rest", share, part, f"{share} {part}")
    yield ("bubble", f"{times.bubble.idle_fraction:.1%}", "idle / (IPUs × makespan)")
    if verdict is not None and used_ipus(times) > 1:
        yield _speed_up_figure(times, verdict)
    if run.describes_memory and (fullest := run.fullest) is not None:
        limit = fullest.sram_bytes
        share_of_limit = f"{fullest.peak_bytes / limit:.1%} of {format_bytes(limit)}" if limit else "not limited"
        fits = "" if run.fits is analysis.Fits.YES else f", {run.fits}"
        yield (
            "fullest memory",
            format_bytes(fullest.peak_bytes),
            f"{noun_with_numbers('IPU', run.fullest_ipus)}, {share_of_limit}{fits}",
        )


def _speed_up_figure(times: analysis.RunTimes, verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """Return speed-up over one IPU, with time and memory of the single IPU."""
    if (cycles := verdict["single_ipu_cycles"]) is None:
        return ("against one IPU", "not known", verdict["single_ipu_refusal"])
    words = one_ipu_words(times.seconds(cycles), verdict["single_ipu_excess_bytes"])
    return ("against one IPU", f"{verdict['speed_up']:.2f} ×", words)


def _waterfall(run: StoredRun) -> dict[str, Any] | None:
    """Return the parts of the run's time as a bar; None if unknown or without time."""
    if run.waterfall is None or not run.waterfall.run_cycles:
        return None
    parts = run.waterfall.cycles
    rows = {"time of the run": [max(cycles, 0) for cycles in parts.values()]}
    looks = [part.value for part in parts]
    return bars_data("Parts of the time", looks, rows, run.waterfall.run_cycles, run.times.clock_hz)


def _verdict(run: StoredRun, explanation: Explanation) -> Iterator[str]:
    """Yield the throughput's error, remarks on time parts, and helpful changes."""
    if run.throughput_error:
        yield f"Error of the throughput: {run.throughput_error}."
    if run.waterfall is None:
        yield from explanation.where_words()
    else:
        yield from run.waterfall.remarks()
    yield from _NOT_EXPLAINED if run.help_sentences is None else run.help_sentences


def _bars(explanation: Explanation, clock_hz: int) -> dict[str, Any]:
    """Return a bar per IPU over the whole run: cycles by use, arithmetic first."""
    looks, columns = zip(*explanation.ipu_time, strict=True)
    cycles = zip(*(column.tolist() for column in columns), strict=True)
    rows = {f"IPU {ipu}": parts for ipu, parts in enumerate(cycles)}
    return bars_data("Time of IPUs by use", looks, rows, explanation.idle.window_cycles, clock_hz)


def _curves(run: StoredRun) -> tuple[analysis.MemoryCurve, ...]:
    """Return the memory of IPUs over time; empty if not in the folder."""
    curves = run.curves
    if sum(curve.entries_in_all for curve in curves) > _MOST_ENTRIES:
        return curves
    return tuple(curve.expanded() for curve in curves)


def _memory(run: StoredRun, curves: Sequence[analysis.MemoryCurve]) -> dict[str, Any]:
    """Return the layers of every IPU's memory, and its limit in bytes; None if unlimited."""
    info, summary = run.timeline.info, run.summary["memory"]
    bytes_by_ipu = {
        ipu["ipu"]: {holder: int(ipu["holders"][holder.key]) for holder in pipelines.Holder} for ipu in summary["ipus"]
    }
    limit = None if summary["sram_bytes"] is None else int(summary["sram_bytes"])
    rows = [memory_row(curve, bytes_by_ipu[curve.ipu % info.shards], info) for curve in curves]
    return {"limit": limit, "verdict": summary["verdict"], "rows": rows}


def _scenario(folder: Path) -> str:
    """Return the text of the scenario in a run folder."""
    path = folder / SCENARIO_FILE
    if not has_run_file(path):
        return _NO_SCENARIO
    return read_run_file(path, MAX_SCENARIO_BYTES).decode("utf-8", "replace")
