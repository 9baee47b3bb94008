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

The programs for TensorFlow 1 and 2 in Graphcore's public tutorials, feature examples and benchmarks, each at the commit
of its repository that its link shows, unchanged, imports included, with `ipusim run` and arguments that make it small.
None of their text is in this repository. `python -m reports.public_programs FOLDER`, with checkouts of the
repositories in `FOLDER`, runs them again and writes what this page shows.

A program *runs* when it ends well and prints what its own text or test says; it *differs* when it does not print that.
What is refused is refused with the message in the last column, or needs what no simulation of IPUs has. A program that
reaches a limit of time is *undecided*; the limit of processor time does not count the machine's other work.
"""
_FURTHER: Final = """\
# Further programs

Applications and users' programs that were chosen by [a rule](further_programs.txt) before any of them was run. The
column *first run* has the outcome of the first run and the commit of ipusim that it is of; what kept programs from
running was mended then, for all programs that have it, and *here* is the outcome of the last run of the same file.
`python -m reports.public_programs FOLDER --further` runs them.
"""


def programs_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([*_part(_HEAD, read_programs()), *_further(read_programs(FURTHER))])


def _further(programs: Sequence[Program]) -> list[str]:
    """Return the section on further programs, with the share that runs among self-contained programs."""
    alone = [program for program in programs if program.needs_nothing]
    ran = sum(program.outcome is Outcome.RUNS for program in alone)
    at_first = sum(program.first.startswith(Outcome.RUNS) for program in alone)
    share = (
        f"{len(alone)} of the {len(programs)} need no package, file or compiled operation that is missing: "
        f"{at_first} of them ran in their first run, and {ran}, {ran / len(alone):.0%}, run here.\n"
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
    firsts = ("first run",) if any(program.first for program in programs) else ()
    for checkout in dict.fromkeys((program.repository, program.commit) for program in programs):
        repository, commit = checkout
        below = [program for program in programs if (program.repository, program.commit) == checkout]
        table = Table(repository, ("program", "arguments", *firsts, "here", "why"), _rows(below, bool(firsts)))
        parts.append(f"## {repository} at {commit}\n\n{table_markdown(table)}")
    return parts


def _states(programs: Sequence[Program]) -> str:
    """Return a sentence on the commits of ipusim that produced the outcomes."""
    states = Counter(program.state for program in programs)
    if len(states) == 1:
        return f"All outcomes are of ipusim at commit {programs[0].state}.\n"
    counts = ", ".join(f"{count} at {state}" for state, count in states.most_common())
    return f"The outcomes are of ipusim at several commits: {counts}. A refusal of an earlier one may be out of date.\n"


def _rows(programs: Sequence[Program], firsts: bool) -> tuple[tuple[str, ...], ...]:
    """Return the rows of programs, sorted by outcome; ``firsts`` adds first outcomes."""
    order = [*Outcome]
    return tuple(
        (
            f"[{program.path}]({program.link})",
            f"`{program.arguments}`" if program.arguments else "",
            *((program.first,) if firsts else ()),
            program.outcome.value,
            _why(program),
        )
        for program in sorted(programs, key=lambda program: order.index(program.outcome))
    )


def _why(program: Program) -> str:
    """Return why a program does not run, as a table cell.

    The reason is the program's needs, or a message.
    """
    if program.outcome is Outcome.RUNS:
        return ""
    if not program.needs_nothing:
        return f"it needs {program.needs}"
    return program.why.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*").replace("_", "\\_")
