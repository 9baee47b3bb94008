"""The command that takes what other tools measured: import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli.app import app
from ipusim.app.terminal import print_tables, print_text, status

if TYPE_CHECKING:
    from ipusim.app.profiles.stages import Stages

_Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="traces of torch's profiler or others in Chrome's format, JSON or packed by gzip, of each rank; logs of "
        "Megatron-LM with --timing-log-level 2 --timing-log-option all, or its OpenTelemetry spans; logs of "
        "DeepSpeed's wall clock breakdown; reports of nsys as SQLite, or its nvtx_sum as CSV",
    ),
]
_Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="PASS=NAME",
        help="what is a forward, backward, backward_input, backward_weights or update; * is any text, {stage} the "
        "number of a stage, {micro_batch} that of a micro-batch: forward=fwd_{stage}_*, or encoder.forward=enc*; parts "
        "of a pass are summed: forward=attn(F)+mlp(F)  [default: names of torch.distributed.pipelining; of Megatron's "
        "and DeepSpeed's timers and spans]",
    ),
]
_Stages = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="where names do not say the stage: stages that the ranks, in their order, are divided among; they are "
        "then all  [default: as the files say, or one a rank of a trace]",
    ),
]
_Count = Annotated[
    int | None,
    typer.Option(
        min=1, max=2**31 - 1, metavar="N", help="micro-batches behind a weight update  [default: as measured]"
    ),
]
_Parts = Annotated[
    int | None,
    typer.Option(
        "--parts-per-pass",
        min=1,
        metavar="N",
        help="spans in a pass that is made of parts  [default: all until one of another pass begins]",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.yaml",
        help="file for a scenario, with FILE.csv beside it  [default: the CSV is printed]; with --replay the folder of "
        "the results  [default: reports/<name of the first file>]",
    ),
]
_Replay = Annotated[
    bool,
    typer.Option(
        "--replay",
        help="hold a measured step against the simulation of its plan: times, bubble, idle time by cause, critical "
        "path, and the difference by part: copies, waits, jitter, stragglers, not explained",
    ),
]


@app.command("import")
def import_(
    files: _Files,
    names: _Names = None,
    stages: _Stages = None,
    count: _Count = None,
    parts: _Parts = None,
    out: _Out = None,
    replay: _Replay = False,
    as_json: Annotated[bool, typer.Option("--json", help="with --replay: print replay.json and nothing else")] = False,
) -> None:
    """Make stages of what a profiler measured: medians as a CSV file, which runs as it is, and a scenario of it."""
    from ipusim.app.profiles.read import read_measured
    from ipusim.app.profiles.stages import stages_of
    from ipusim.app.profiles.written import csv_text, figures_table, known_table, legal_count, scenario_text
    from ipusim.app.run_folder.output_file import IMPORTED, IMPORTED_TABLE, check_output
    from ipusim.base.errors import OptionError
    from ipusim.base.files import write_file

    if as_json and not replay:
        raise OptionError("json", "expected {} with it, whose results are JSON, got none", "replay")
    table = None if out is None or replay else out.with_suffix(".csv")
    if out is not None and table is not None:
        check_output(out, IMPORTED, files)
        check_output(table, IMPORTED_TABLE, files)
    with status("reading") as progress:
        measured = stages_of(read_measured(files, names or (), count, parts, progress), stages, count)
    print_tables(known_table(measured), to_stderr=True)
    for note in measured.notes:
        typer.echo(note, err=True)
    if replay:
        _replay(measured, files, out or Path("reports") / files[0].name.partition(".")[0], as_json)
        return
    if out is None or table is None:
        typer.echo(csv_text(measured), nl=False)
        return
    text = scenario_text(measured, table.name, [path.name for path in files]).encode()
    write_file(table, csv_text(measured).encode())
    write_file(out, text)
    print_tables(figures_table(measured))
    print_text(*filter(None, [legal_count(measured)[1]]), f"{out}, {table}")


def _replay(measured: Stages, files: Sequence[Path], folder: Path, as_json: bool) -> None:
    """Hold a measured step against its simulation, write both as runs and print the difference."""
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from ipusim.app.page.page import PAGE, write_page
    from ipusim.app.replay.replay import REPLAY_FILES, RUN_FILES, replay
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.run_folder.report import OUTDATED_FILES

    with ExitStack() as stack:
        folders = {name: folder / name for name in ("measured", "simulated")}
        results = stack.enter_context(ResultsFolder(folder, REPLAY_FILES, outdated=[PAGE], reads=files))
        inside = {
            name: stack.enter_context(ResultsFolder(path, RUN_FILES, outdated=OUTDATED_FILES, reads=files))
            for name, path in folders.items()
        }
        found = replay(measured, Path(stack.enter_context(TemporaryDirectory())), files)
        for name, each in inside.items():
            each.write(found.run_files(name, folders[name]))
        results.write(written := found.files())
    page = write_page([*folders.values()], folder / PAGE)
    if as_json:
        typer.echo(written["replay.json"].decode(), nl=False)
        return
    print_text(*found.words())
    print_tables(*found.tables())
    print_text(f"{folder}: {', '.join((*written, page.name))}; the runs {' and '.join(folders)}")
