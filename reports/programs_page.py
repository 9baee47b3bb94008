"""Page on public programs: programs of Graphcore's repositories that use the API, with their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ipusim.app.render.tables import Table
from ipusim.app.study.result import table_markdown
from reports.public_programs import FURTHER, Outcome, Program, read_programs

_HEAD: Final = """\
# Public programs for Graphcore's TensorFlow

See here which public programs run on ipusim without changes, and why other programs do not. The first part has the
TensorFlow 1 and 2 programs in Graphcore's public tutorials, feature examples and benchmarks. Each program ran with its
imports under `ipusim run`, with arguments for a small run, at the linked commit. If no arguments make a run small, the
program finds small generated files of its dataset in Keras' folder; the table has their number of images for training,
and tests have as many. This repository contains no text of the programs.

`python -m reports` makes the page from stored outcomes. `python -m reports.public_programs FOLDER` runs the programs
again, from checkouts of their repositories in `FOLDER`, and stores the outcomes.

A program *runs* if it succeeds and prints the output announced in its text or test. It *differs* with other output. A
*refused* program has a message in the last column, or requirements outside the simulation of an IPU. An *undecided*
program reached a limit of processor time or elapsed time.
"""
_FURTHER: Final = """\
# Further programs

Applications, programs of users and examples of documentation, chosen by [a rule](further_programs.txt) before any run.
The column *first run* has the outcome of the first run and the commit of ipusim. Then the causes of failures were fixed
in ipusim, and *here* is the outcome of the last run of the same file.
`python -m reports.public_programs FOLDER --further` runs these programs.
"""


def programs_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([*_part(_HEAD, read_programs()), *_further(read_programs(FURTHER))])


def _further(programs: Sequence[Program]) -> list[str]:
    """Return the section on further programs, with the share that runs among self-contained programs."""
    self_contained = [program for program in programs if program.needs_nothing]
    ran = sum(program.outcome is Outcome.RUNS for program in self_contained)
    at_first = sum(program.first.startswith(Outcome.RUNS) for program in self_contained)
    share = (
        f"{len(self_contained)} of the {len(programs)} programs need no missing package, file or compiled operation: "
        f"{at_first} ran in the first run, and {ran} ({ran / len(self_contained):.0%}) run here.\n"
    )
    return _part(_FURTHER + "\n" + share, programs)


def _part(head: str, programs: Sequence[Program]) -> list[str]:
    """Return a section on programs: head, counts of outcomes, and tables per repository."""
    counts = Counter(program.outcome for program in programs)
    summary = Table(
        "Public programs",
        (*(outcome.value for outcome in Outcome), "all"),
        ((*(str(counts[outcome]) for outcome in Outcome), str(len(programs))),),
    )
    parts = [head, _states(programs), table_markdown(summary)]
    first_header = ("first run",) if any(program.first for program in programs) else ()
    for checkout in dict.fromkeys((program.repository, program.commit) for program in programs):
        repository, commit = checkout
        below = [program for program in programs if (program.repository, program.commit) == checkout]
        table = Table(
            repository,
            ("program", "arguments and data", *first_header, "here", "why"),
            _rows(below, bool(first_header)),
        )
        parts.append(f"## {repository} at {commit}\n\n{table_markdown(table)}")
    return parts


def _states(programs: Sequence[Program]) -> str:
    """Return a sentence on the commits of ipusim that produced the outcomes."""
    states = Counter(program.state for program in programs if program.state)
    not_run = len(programs) - states.total()
    rest = f" {not_run} program{'s' * (not_run > 1)} did not run yet." if not_run else ""
    if len(states) == 1:
        return f"All outcomes are of ipusim at commit {next(iter(states))}.{rest}\n"
    counts = ", ".join(f"{count} at {state}" for state, count in states.most_common())
    return (
        f"Number of outcomes by commit of ipusim: {counts}.{rest} A refusal by an earlier commit may be out of date.\n"
    )


def _rows(programs: Sequence[Program], has_first_runs: bool) -> tuple[tuple[str, ...], ...]:
    """Return the rows of programs, sorted by outcome; ``has_first_runs`` adds first outcomes."""
    order = [*Outcome]
    return tuple(
        (
            f"[{program.path}]({program.link})",
            _run_inputs(program),
            *((program.first,) if has_first_runs else ()),
            program.outcome.value,
            _why(program),
        )
        for program in sorted(programs, key=lambda program: order.index(program.outcome))
    )


def _run_inputs(program: Program) -> str:
    """Return arguments and generated images of a program's run, as a table cell."""
    arguments = [f"`{program.arguments}`"] if program.arguments else []
    images = [] if program.images is None else [f"{program.images[0]} images of {program.images[1]}"]
    return "; ".join(arguments + images)


def _why(program: Program) -> str:
    """Return why a program does not run, as a table cell.

    The reason is the program's needs, or a message.
    """
    if program.outcome is Outcome.RUNS:
        return ""
    if not program.needs_nothing:
        return f"it needs {program.needs}"
    return program.why.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*").replace("_", "\\_")
