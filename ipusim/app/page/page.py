"""Report page of run folders, self-contained for sharing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ipusim.api import analysis, pipelines, timelines
from ipusim.app.explain.explanation import Explanation, explain
from ipusim.app.page.page_tables import folder_tables
from ipusim.app.render.page.page import html_page
from ipusim.app.render.page.played import played_data
from ipusim.app.render.page.run import Bars, Figure, HeldMemory, PageRun, run_data, table_data, tables_of_looks
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
from ipusim.base.units import format_bytes, format_seconds, format_throughput, numbered

#: File names of the page, and of the page that opens playing.
PAGE: Final = "report.html"
PLAY: Final = "play.html"
_NO_SCENARIO: Final = "The folder holds no scenario: a program started this run, or an older ipusim wrote the folder."
_NOT_EXPLAINED: Final = ("This folder has no explanation: ipusim explain tries changes and writes the best here.",)
_NO_MEMORY: Final = (
    "Not known: the memory of the stages is not known, or an older ipusim wrote this folder without memory.npz."
)
#: Most memory changes shown in full; beyond, only the first and last periods are shown.
_MOST_ENTRIES: Final = 400_000
#: Most runs that a page plays: more would be illegibly small.
MOST_PLAYED: Final = 2
#: Most runs named in a page's title.
_MOST_RUNS: Final = 3


def report_page(folders: Sequence[Path], *, play: bool = False) -> bytes:
    """Return the page of the runs in ``folders``, in order; equal runs give equal bytes.

    The page opens playing if ``play``. Raises FileError for a path without a run and for malformed files, TimelineError
    for a damaged Timeline, OutputError for an execution that cannot be played if ``play``, and OSError for unreadable
    files.
    """
    return _page([read_run(folder) for folder in folders], play=play)


def _page(folders: Sequence[StoredRun], *, play: bool) -> bytes:
    runs = _with_distinct_titles([_page_run(run) for run in folders], folders)
    data, contents = zip(*map(run_data, runs), strict=True)
    title = runs[0].title if len(runs) == 1 else f"{len(runs)} runs: {_names(folders)}"
    overview = table_data(_overview(runs, folders)) if len(runs) > 1 else None
    page = {"title": title, "made": " ".join(versions()), "overview": overview, **tables_of_looks(), "runs": data}
    try:
        played, columns = _played(folders, play=play)
    except OutputError as error:
        if play:
            raise
        return html_page(title, {**page, "played": [], "unplayable": str(error)}, contents)
    return html_page(title, {**page, "played": played, "plays": play}, [*contents, *columns])


def _played(folders: Sequence[StoredRun], *, play: bool) -> tuple[Sequence[dict[str, Any]], Sequence[str]]:
    """Return data and columns of the first executions; raises OutputError for runs that cannot be played together."""
    if len(folders) > MOST_PLAYED and not play:
        raise OutputError(f"expected one run, or two on one clock, got {len(folders)}")
    data, columns = zip(*(played_data(run.timeline, _stash_bytes(run)) for run in folders), strict=True)
    return data, columns


def _stash_bytes(run: StoredRun) -> tuple[int, ...] | None:
    """Return the bytes that stages keep for a micro-batch; None if unknown."""
    if not run.describes_memory:
        return None
    with run.as_written():
        sizes = tuple(int(stage["kept_bytes"]) for stage in run.summary["memory"]["stages"])
    if len(sizes) != len(run.timeline.info.stages):
        raise FileError(
            f"{run.folder / 'summary.json'}: expected the memory of every stage, got the memory of {len(sizes)} stages"
        )
    return sizes


def _with_distinct_titles(runs: Sequence[PageRun], folders: Sequence[StoredRun]) -> list[PageRun]:
    """Append the folder to titles shared by several runs."""
    counts = Counter(run.title for run in runs)
    return [
        replace(run, title=f"{run.title}, {folder.folder}") if counts[run.title] > 1 else run
        for run, folder in zip(runs, folders, strict=True)
    ]


def write_page(folders: Sequence[Path], out: Path | None = None, *, play: bool = False) -> Path:
    """Write the page of runs, by default into their first folder, and return its path.

    The next run in this folder removes the page.

    Args:
        folders: run folders; at most two to play.
        out: path of the page; None for the first folder.
        play: whether the page opens with the first execution of each run playing.

    Raises as :func:`report_page` does, OptionError for too many runs to play, and OutputError for an unwritable page
    and for an execution that cannot be played.
    """
    if not folders:
        raise FileError("expected at least one folder of a run, got none")
    if play and len(folders) > MOST_PLAYED:
        raise OptionError("play", f"expected one run, or two on one clock, got {len(folders)}")
    if out is not None:
        check_output(out, PAGE_FILE)
        write_file(out, report_page(folders, play=play))
        return out
    folder_runs, name = [read_run(folder) for folder in folders], PLAY if play else PAGE
    with ResultsFolder(folders[0], (name,)) as results:
        results.write({name: _page(folder_runs, play=play)})
    return folders[0] / name


def _names(runs: Sequence[StoredRun]) -> str:
    names = [*dict.fromkeys(run.times.name for run in runs)]
    return ", ".join(names[:_MOST_RUNS]) + (" and others" if len(names) > _MOST_RUNS else "")


def _overview(runs: Sequence[PageRun], folders: Sequence[StoredRun]) -> Table:
    """Return the headline figures by run, with a note on different sync modes."""
    labels = [*dict.fromkeys(figure.label for run in runs for figure in run.figures)]
    rows = tuple(
        (
            run.title,
            *(
                {figure.label: figure.in_row or figure.value for figure in run.figures}.get(label, "-")
                for label in labels
            ),
        )
        for run in runs
    )
    note = pipelines.idealised(run.times.sync for run in folders)
    return Table(". ".join(filter(None, ["Runs", note.rstrip(".")])), ("run", *labels), rows)


def _page_run(run: StoredRun) -> PageRun:
    timeline, times = in_periods(run.timeline), run.times
    explanation = explain(
        run.timeline, "a page does not try changes", waterfall=run.waterfall, shares=run.recomputed_shares
    )
    with run.as_written():
        memory = _memory(run)
        tables = (summary_table(times), ipu_table(times), *explanation.tables(), *folder_tables(run))
        figures = tuple(_figures(run))
        gaps = [
            f"Cycles {gap.start:,} to {gap.end:,} are not drawn: {gap.words}, each like the parts before and after."
            for gap in left_out(timeline)
        ]
        no_memory = run.summary["memory"]["verdict"] if run.fits is analysis.Fits.UNKNOWN else _NO_MEMORY
        notes = (*map(str, run.summary["notes"]), *filter(None, [run.older]), *gaps)
    return PageRun(
        title=f"{times.name}: {times.order_and_sync} on {times.system}",
        description=run.summary["description"],
        timeline=timeline.rows_alone(),
        spans=run.timeline.spans_in_all,
        figures=figures,
        waterfall=_waterfall(run),
        verdict=tuple(_verdict(run, explanation)),
        notes=notes,
        gaps=tuple(left_out(timeline)),
        fits=run.fits,
        memory=memory,
        no_memory="" if memory else str(no_memory),
        path=(analysis.critical_path_of(timeline) if run.timeline.repeats else explanation.path).rows,
        bars=_bars(explanation),
        tables=tables,
        scenario=_scenario(run.folder),
    )


def _figures(run: StoredRun) -> Iterator[Figure]:
    """Yield the headline figures; parts of the time only if the folder has them."""
    times, verdict = run.times, run.summary.get("verdict")
    rates, period = times.throughput, times.period
    synthetic = ", synthetic data" if key_of(analysis.SYNTHETIC_DATA) in run.summary["options"] else ""
    yield Figure(f"time per {period}", format_seconds(rates.weight_update_period_s), times.order_and_sync)
    yield Figure(
        "throughput",
        format_throughput(rates.samples_per_s),
        f"{rates.effective_batch_size:,} per {period}{synthetic}",
    )
    if run.waterfall is not None:
        useful = timelines.TimePart.USEFUL
        yield Figure(useful.words, f"{run.waterfall.share(useful):.1%}", "of the time")
        largest = next(run.waterfall.largest(), None)
        if largest is not None:
            part, share = largest[0].words, f"{largest[1]:.1%}"
            yield Figure("most of the rest", share, part, in_row=f"{share} {part}")
    yield Figure("bubble", f"{times.bubble.idle_fraction:.1%}", "idle / (IPUs × makespan)")
    if verdict is not None and used_ipus(times) > 1:
        yield _against_one(times, verdict)
    if run.describes_memory and (fullest := run.fullest) is not None:
        limit = fullest.sram_bytes
        share_of_limit = f"{fullest.peak_bytes / limit:.1%} of {format_bytes(limit)}" if limit else "not limited"
        fits = "" if run.fits is analysis.Fits.YES else f", {run.fits}"
        yield Figure(
            "fullest memory",
            format_bytes(fullest.peak_bytes),
            f"{numbered('IPU', run.as_full)}, {share_of_limit}{fits}",
        )


def _against_one(times: analysis.RunTimes, verdict: Mapping[str, Any]) -> Figure:
    """Return the comparison with the same work on one IPU."""
    if (cycles := verdict["single_ipu_cycles"]) is None:
        return Figure("against one IPU", "not known", verdict["single_ipu_refusal"])
    words = one_ipu_words(times.seconds(cycles), verdict["single_ipu_excess_bytes"])
    return Figure("against one IPU", f"{verdict['speed_up']:.2f} ×", words)


def _waterfall(run: StoredRun) -> Bars | None:
    """Return the parts of the run's time as a bar; None if unknown or without time."""
    if run.waterfall is None or not run.waterfall.run_cycles:
        return None
    parts = run.waterfall.cycles
    row = ("time of the run", tuple(max(cycles, 0) for cycles in parts.values()))
    return Bars("Parts of the time", tuple(part.value for part in parts), (row,), run.waterfall.run_cycles)


def _verdict(run: StoredRun, explanation: Explanation) -> Iterator[str]:
    """Yield the throughput's error, remarks on time parts, and helpful changes."""
    if run.throughput_error:
        yield f"Error of the throughput: {run.throughput_error}."
    if run.waterfall is None:
        yield from explanation.where_words()
    else:
        yield from run.waterfall.remarks()
    yield from _NOT_EXPLAINED if run.help is None else run.help


def _bars(explanation: Explanation) -> Bars:
    """Return the time of every IPU over the whole run, arithmetic first."""
    looks, cycles = zip(*explanation.ipu_time, strict=True)
    rows = tuple(
        (f"IPU {ipu}", cycles_of_ipu)
        for ipu, cycles_of_ipu in enumerate(zip(*(column.tolist() for column in cycles), strict=True))
    )
    return Bars("Time of IPUs by use", looks, rows, explanation.idle.window_cycles)


def _memory(run: StoredRun) -> HeldMemory | None:
    """Return the memory of IPUs over time; None if not in the folder."""
    curves, summary = run.curves, run.summary["memory"]
    if not curves:
        return None
    if sum(curve.entries_in_all for curve in curves) <= _MOST_ENTRIES:
        curves = tuple(curve.expanded() for curve in curves)
    bytes_by_ipu = {
        ipu["ipu"]: {holder: int(ipu["holders"][holder.key]) for holder in pipelines.Holder} for ipu in summary["ipus"]
    }
    holders = tuple(bytes_by_ipu[curve.ipu % run.timeline.info.shards] for curve in curves)
    limit = None if summary["sram_bytes"] is None else int(summary["sram_bytes"])
    return HeldMemory(curves, holders, limit, summary["verdict"])


def _scenario(folder: Path) -> str:
    """Return the text of the scenario in a run folder."""
    path = folder / SCENARIO_FILE
    if not has_run_file(path):
        return _NO_SCENARIO
    return read_run_file(path, MAX_SCENARIO_BYTES).decode("utf-8", "replace")
