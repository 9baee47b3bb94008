"""What the command of mutations changes, and which tests it runs for a change."""

from __future__ import annotations

import json
import random
from pathlib import Path

import coverage

from tests.mutations.changes import changes_of
from tests.mutations.ran import LINES, TESTS, RanLines, digest, modules
from tests.mutations.reach import concerned
from tests.scenarios import ROOT

TEXT = '''"""A module: 1 + 1 in words is left alone."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

Name = int | None


@cache(maxsize=8)
def of(a: int | None, *, much=True) -> "int | str":
    found = [b for b in zip(a, strict=True) if b]
    if not a or 1 < len(found) <= 3:
        return -min(a) + 0.5
    a = a.reshape(-1, 7)
    return f"{a + 1}"
'''


def test_operators_constants_and_branches_change_one_at_a_time_and_nothing_else():
    changes = changes_of(TEXT.encode(), Path("room/it.py"))
    assert [str(change).split(": ", 1)[1] for change in changes] == [
        "True -> False",
        "b -> (not (b))",
        "not -> ",
        "not a or 1 < len(found) <= 3 -> (not (not a or 1 < len(found) <= 3))",
        "or -> and",
        "1 -> 2",
        "< -> <=",
        "<= -> <",
        "3 -> 4",
        "- -> ",
        "min -> max",
        "+ -> -",
        "0.5 -> 1.0",
        "- -> ",
        "7 -> 8",
    ]
    assert {change.made(TEXT.encode()) for change in changes}.isdisjoint({TEXT.encode()})
    assert {change.line for change in changes} == {12, 13, 14, 15, 16}


def test_what_is_changed_is_still_python():
    drawn = random.Random(0).sample(modules(), 20)
    contents = [(module, (ROOT / "ipusim" / module).read_bytes()) for module in drawn]
    made = [change.made(content) for module, content in contents for change in changes_of(content, module)]
    for text in random.Random(0).sample(made, 100):
        compile(text, "changed", "exec")


def measured(folder, module, contexts):
    data = coverage.CoverageData(str(folder / LINES))
    for context, numbers in contexts.items():
        data.set_context(context)
        data.add_lines({str(ROOT / "ipusim" / module): numbers})
    data.write()
    seconds = {context.rpartition("|")[0]: len(context) / 100 for context in contexts if context}
    texts = {module.as_posix(): digest(module)}
    (folder / TESTS).write_text(json.dumps({"words": [], "texts": texts, "seconds": seconds}))
    return RanLines(folder)


def line_of(module, text):
    lines = (ROOT / "ipusim" / module).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_change_concerns_the_tests_that_run_its_line_or_use_what_it_makes_at_import(tmp_path):
    module = Path("analysis/causes.py")
    table, used, other = (line_of(module, text) for text in ("CAUSES: Final = ", "for cause in CAUSES)", "near[-1] if"))
    ran = measured(tmp_path, module, {"": [table], "a.py::one|run": [used], "a.py::two|setup": [other]})
    assert ran.knows(module)
    assert not ran.knows(Path("analysis/waterfall.py"))
    assert concerned(module, other, ran) == {"a.py::two"}
    assert concerned(module, table, ran) == {"a.py::one"}
    assert concerned(module, other - 1, ran) == set()


def test_the_quickest_tests_come_first_but_for_those_of_the_room(tmp_path):
    module, own = Path("analysis/causes.py"), "tests/unit/analysis/a_long_name.py::three"
    ran = measured(tmp_path, module, {"a.py::one|run": [1], "a.py::two|setup": [1], f"{own}|run": [1]})
    every = {"a.py::two", "a.py::one", own}
    assert ran.quickest(every, module, 9.0) == [own, "a.py::one", "a.py::two"]
    assert ran.quickest(every, module, 0.0) == [own]
    assert ran.quickest(every, Path("runs/run.py"), 9.0) == ["a.py::one", "a.py::two", own]
