"""The page of public programs: those of Graphcore's repositories that use the API, and how each runs here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ipusim.app.render.tables import Table
from reports.markdown import markdown
from reports.public_programs import Outcome, Program, read_programs

_HEAD = """\
# Public programs for Graphcore's TensorFlow

The programs for TensorFlow 1 and 2 in Graphcore's public tutorials, feature examples and benchmarks, each at the commit
of its repository that its link shows, unchanged, imports included, with `ipusim run` and arguments that make it small.
None of their text is in this repository. `python -m reports.public_programs FOLDER`, with checkouts of the
repositories in `FOLDER`, runs them again and writes what this page shows.

A program *runs* when it ends well and prints what its own text or test says; it *differs* when it does not print that.
What is refused is refused with the message in the last column, or needs what no simulation of IPUs has. What trains for
longer than the seconds in the last column, on a machine with much else to do, is *undecided*.
"""


def programs_page() -> str:
    """Return the page as Markdown."""
    programs = read_programs()
    counts = Counter(program.outcome for program in programs)
    summary = Table(
        "Public programs",
        (*(outcome.value for outcome in Outcome), "all"),
        ((*(str(counts[outcome]) for outcome in Outcome), str(len(programs))),),
    )
    parts = [_HEAD, _states(programs), markdown(summary)]
    for checkout in dict.fromkeys((program.repository, program.commit) for program in programs):
        repository, commit = checkout
        below = [program for program in programs if (program.repository, program.commit) == checkout]
        table = Table(repository, ("program", "arguments", "here", "why"), _rows(below))
        parts.append(f"## {repository} at {commit}\n\n{markdown(table)}")
    return "\n".join(parts)


def _states(programs: Sequence[Program]) -> str:
    """Return the sentence on the commits of ipusim that the outcomes are of."""
    states = Counter(program.state for program in programs)
    if len(states) == 1:
        return f"All outcomes are of ipusim at commit {programs[0].state}.\n"
    counts = ", ".join(f"{count} at {state}" for state, count in states.most_common())
    return f"The outcomes are of ipusim at several commits: {counts}. A refusal of an earlier one may be out of date.\n"


def _rows(programs: Sequence[Program]) -> tuple[tuple[str, ...], ...]:
    """Return the rows of programs, by outcome and then as they stand."""
    order = [*Outcome]
    return tuple(
        (
            f"[{program.path}]({program.link})",
            f"`{program.arguments}`" if program.arguments else "",
            program.outcome.value,
            _why(program),
        )
        for program in sorted(programs, key=lambda program: order.index(program.outcome))
    )


def _why(program: Program) -> str:
    """Return why a program does not run: what it needs, or the message, as text of a table's cell."""
    if program.outcome is Outcome.RUNS:
        return ""
    if program.needs:
        return f"it needs {program.needs}"
    return (
        program.why.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*").replace("_", "\\_")
    )
