"""Page that explains one run: causes of idle time, critical path, and effects of possible changes."""

from __future__ import annotations

from ipusim.app.explain.explanation import Explanation, explain
from ipusim.app.run_folder.opened import open_source
from ipusim.app.study.result import table_markdown
from reports.gallery import SCENARIOS

#: Explained pipeline: uneven stages, costly copies, and a single execution.
SCENARIO = "digits_training"
CHANGES = ("steps=1",)


def explanation() -> Explanation:
    """Explain the first execution of the run."""
    found = open_source(SCENARIOS / f"{SCENARIO}.yaml", CHANGES)
    return explain(found.timeline, found.job, 0)


def explanation_files() -> dict[str, bytes]:
    """Return the page and its pictures by name."""
    found = explanation()
    files = found.files()
    return {
        "explanation.md": _page(found).encode(),
        "explanation-idle.png": files["idle_causes.png"],
        "explanation-path.png": files["critical_path.png"],
    }


def _page(found: Explanation) -> str:
    command = f"ipusim explain scenarios/{SCENARIO}.yaml --set {CHANGES[0]} --execution 0"
    parts, idle, path, sensitive, *what_ifs = (
        f"## {table.title}\n\n{table_markdown(table)}" for table in found.tables()
    )
    return "\n".join(
        [
            "# Why a run takes as long as it does\n",
            f"```console\n$ {command}\n```\n",
            *(f"{line}\n" for line in found.words()),
            "![What each IPU takes its time for](explanation-idle.png)\n",
            "A part is what the run takes more with it than without it, both simulated, from useful compute on: they\n"
            "add up to the run, cycle by cycle.\n",
            parts,
            "Of the waits of an IPU for passes of others, what it would wait with balanced stages is fill and drain\n"
            "with gaps in main, what it would wait more if there were nothing but passes is imbalance of stages, and\n"
            "the rest belongs to parts by which those passes come later, as far as an average execution has them.\n",
            idle,
            "![The critical path on the execution trace](explanation-path.png)\n",
            "Each span of the critical path was released by the end of the one before: together they are the run.\n",
            path,
            "Where several paths are equally long, a pass may lengthen the run less often than one of them has it.\n"
            "The next table has differences between lengths of the run instead, computed without events.\n",
            sensitive,
            "Each change is simulated, and held against the run by its time for a sample. What does not fit comes\n"
            "behind what does, and other hardware stands apart.\n",
            *what_ifs,
        ]
    )
