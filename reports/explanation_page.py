"""Page that explains one run: causes of idle time, critical path, and effects of possible changes."""

from __future__ import annotations

from typing import Final

from ipusim.app.explain.explanation import Explanation, explain
from ipusim.app.run_folder.opened import open_source
from ipusim.app.study.result import table_markdown
from reports.gallery import SCENARIOS

#: Explained pipeline: uneven stages, costly copies, and a single execution.
SCENARIO = "digits_training"
CHANGES = ("steps=1",)


def explanation() -> Explanation:
    """Explain the first execution of the run."""
    result = open_source(SCENARIOS / f"{SCENARIO}.yaml", CHANGES)
    return explain(result.timeline, result.job, 0)


def explanation_files() -> dict[str, bytes]:
    """Return the page and its pictures by name."""
    result = explanation()
    files = result.files()
    return {
        "explanation.md": _page(result).encode(),
        "explanation-idle.png": files["idle_causes.png"],
        "explanation-path.png": files["critical_path.png"],
    }


def _page(result: Explanation) -> str:
    command = f"ipusim explain scenarios/{SCENARIO}.yaml --set {CHANGES[0]} --execution 0"
    parts, idle, path, sensitive, *what_ifs = (
        f"## {table.title}\n\n{table_markdown(table)}" for table in result.tables()
    )
    return "\n".join(
        [
            _HEAD,
            f"```console\n$ {command}\n```\n",
            *(f"{line}\n" for line in result.words()),
            "![Time of each IPU by part](explanation-idle.png)\n",
            _OF_PARTS,
            parts,
            _OF_IDLE,
            idle,
            "![The critical path on the execution trace](explanation-path.png)\n",
            _OF_PATH,
            path,
            _OF_CYCLES,
            sensitive,
            _OF_CHANGES,
            *what_ifs,
        ]
    )


_HEAD: Final = """\
# The time of a run, explained

Read here how `ipusim explain` divides the time of a run into parts, and which changes would save most time. `python -m
reports` makes the page, with texts, tables and pictures of this command:
"""
_OF_PARTS: Final = """\
Parts are removed in turn, with a simulation after each removal. Each part is the time saved by the removal, so all
parts add up to the run, to the cycle.
"""
_OF_IDLE: Final = """\
An IPU's waits for passes of other IPUs are divided in this order. Waits with balanced stages count as fill and drain,
or as gaps in main. Further waits of a run with passes alone count as imbalance of stages. Remaining waits go to the
parts that delay the awaited passes, up to the part's average per execution.
"""
_OF_PATH: Final = """\
On the critical path each span starts when the previous span ends, so the spans cover the whole run.
"""
_OF_CYCLES: Final = """\
If several paths are equally long, a longer pass may delay the run less often than this path contains the pass. The
next table therefore compares run times with changed passes, computed without events.
"""
_OF_CHANGES: Final = """\
Each change is simulated and compared with the run by time per sample. Plans beyond the memory follow at the end; a
separate table shows other hardware.
"""
