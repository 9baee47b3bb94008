"""``python -m tests.mutations ROOM``: change one operator, constant or branch of the simulator at a time, and say which
changes no test sees.

mutmut 3 would run every function through a trampoline, leaves constants of modules and decorated functions alone and
draws no sample; cosmic-ray runs one command for every change, whatever ran its line, on twenty packages (SQLAlchemy and
aiohttp among them). What there is here of their work is :mod:`tests.mutations.changes`; coverage does the rest.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutations.changes import Change, changes_of
from tests.mutations.ran import LINES, RanLines, measure, modules
from tests.mutations.reach import concerned
from tests.scenarios import ROOT

#: No change's tests have more memory, in bytes: a changed loop may take all that there is.
_MEMORY = 8 * 2**30
#: Seconds that tests have beyond so many times what they took without a change: Python starts, and pytest collects.
_START_SECONDS, _TIMES = 60, 4


def main(words: list[str]) -> int:
    """Do as a command line says; return 1 where a change was not seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    add = parser.add_argument
    add("rooms", nargs="*", metavar="ROOM", help="folders or modules of ipusim/  [default: the whole simulator]")
    add("--map", type=Path, required=True, metavar="FOLDER", help="which tests run which line")
    add("--measure", action="store_true", help="make the map first: a whole run of the tests")
    add("--all", action="store_true", help="draw all examples of properties, in the map and on changes")
    add("--count", type=int, default=10, metavar="N", help="changes, drawn of all that there are  [default: 10]")
    add("--seed", type=int, default=0, metavar="S", help="of the draw  [default: 0]")
    add("--at", default="", metavar="FILE:LINE", help="all changes of this line instead")
    add("--seconds", type=float, default=60, metavar="T", help="of a change's tests, quickest first  [default: 60]")
    chosen = parser.parse_args(words)
    whole = ["--all"] if chosen.all else []
    if chosen.measure:
        measure(chosen.map, whole)
    if not (chosen.map / LINES).exists():
        parser.error(f"there is no map in {chosen.map}: --measure makes it")
    ran = RanLines(chosen.map)
    changes = [*_changes(chosen.rooms)]
    if not changes:
        parser.error(f"no module of the simulator lies in {' '.join(chosen.rooms)}")
    if chosen.at:
        drawn = [change for change in changes if f"{change.path}:{change.line}" == chosen.at]
    else:
        drawn = random.Random(chosen.seed).sample(changes, min(chosen.count, len(changes)))
    with TemporaryDirectory() as place:
        trials = _Trials(ran, _copied(Path(place) / "tree"), chosen.seconds, whole)
        return _held(sorted(drawn, key=lambda change: (change.path, change.start)), trials)


def _changes(rooms: list[str]) -> Iterator[Change]:
    """Yield all changes of some rooms, which folders and modules name; of all without any."""
    for module in modules():
        if not rooms or any(module.is_relative_to(room.removeprefix("ipusim/")) for room in rooms):
            yield from changes_of((ROOT / "ipusim" / module).read_bytes(), module)


class _Trials:
    """Changes made one after the other in a copy of the work tree, each held against its tests.

    Args:
        ran: which tests run which line.
        copy: of the work tree.
        seconds: of the tests of a change.
        words: to pytest.
    """

    def __init__(self, ran: RanLines, copy: Path, seconds: float, words: list[str]) -> None:
        self._ran, self._copy, self._seconds, self._words = ran, copy, seconds, words
        self._there = _tests_there(copy, words)
        self._sound: set[str] = set()
        self._made = 0

    def verdict(self, change: Change) -> tuple[str, str]:
        """Return whether a change is seen, and by what: first by tests that run it, then by others of their files.

        The others have what a fixture of a file or of the whole session made when another test asked first.
        """
        if not self._ran.knows(change.path):
            return "unknown", "another text than the map's"
        own = concerned(change.path, change.line, self._ran) & self._there
        if not own:
            return "never run", "by no test of the map"
        before = (self._copy / "ipusim" / change.path).read_bytes()
        changed = change.made(before)
        try:
            ast.parse(changed)
        except SyntaxError:
            return "no code", "it does not compile"
        files = {test.partition("::")[0] for test in own}
        others = {test for test in self._ran.seconds if test.partition("::")[0] in files} & self._there - own
        for tests in (own, others):
            while by := self._failing(tests, change.path, changed, before):
                if self._passes_without(by):
                    return "seen", by
                tests.discard(by)
        ran = sum(len(self._ran.quickest(tests, change.path, self._seconds)) for tests in (own, others))
        return "unseen", f"{ran} tests ran, of {len(own)} on its line and {len(others)} beside them"

    def _failing(self, tests: set[str], module: Path, changed: bytes, before: bytes) -> str:
        """Return the first of the tests that fails with a change; nothing if none does."""
        quickest = self._ran.quickest(tests, module, self._seconds)
        try:
            self._write(module, changed)
            return _failed(quickest, self._copy, self._limit(quickest), self._words)
        finally:
            self._write(module, before)

    def _passes_without(self, by: str) -> bool:
        """Return whether what failed was a change's doing: in a copy, not all tests need pass."""
        if by not in self._there or by in self._sound:
            return True
        if _failed([by], self._copy, self._limit([by]), self._words):
            self._there.discard(by)
            return False
        self._sound.add(by)
        return True

    def _limit(self, tests: list[str]) -> float:
        return _START_SECONDS + _TIMES * sum(self._ran.seconds[test] for test in tests)

    def _write(self, module: Path, content: bytes) -> None:
        """Write a module, with a time of its own: Python compiles anew what has another, in whole seconds."""
        self._made += 1
        (self._copy / "ipusim" / module).write_bytes(content)
        os.utime(self._copy / "ipusim" / module, (time.time(), 1_000_000_000 + self._made))


def _held(drawn: list[Change], trials: _Trials) -> int:
    """Make each change, and print what came of it; return 1 where one was not seen."""
    of_room: dict[str, Counter[str]] = {}
    for change in drawn:
        began = time.monotonic()
        verdict, more = trials.verdict(change)
        of_room.setdefault(change.path.parts[0], Counter())[verdict] += 1
        print(f"{verdict:9} {change}  {more}, {time.monotonic() - began:.0f} s", flush=True)
    for room, verdicts in sorted(of_room.items()):
        print(f"{room}: {', '.join(f'{verdict} {count}' for verdict, count in sorted(verdicts.items()))}")
    return int(any(verdict in ("unseen", "never run") for verdicts in of_room.values() for verdict in verdicts))


def _failed(tests: list[str], copy: Path, limit: float, words: list[str]) -> str:
    """Run tests up to the first that fails, and return its name; what came instead, or nothing if all pass."""
    if not tests:
        return ""
    listed = copy / "tests.txt"
    listed.write_text("\n".join(tests))
    command = ["-q", "-x", "-n", "0", "-p", "no:randomly", "--no-header", "--tb=no", *words, "-rfE", f"@{listed}"]
    returncode, out = _pytest(command, copy, limit)
    if returncode is None:
        return f"a limit of {limit:.0f} s"
    failed = [line for line in out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if returncode and not failed:
        failed = [*out.splitlines(), "? nothing that pytest said"][-1:]
    return failed[0].split(" - ")[0].split(maxsplit=1)[1] if failed else ""


def _tests_there(copy: Path, words: list[str]) -> set[str]:
    """Return the tests that there are: of those in the map, some may have gone since."""
    returncode, out = _pytest(["--collect-only", "-q", "-n", "0", *words], copy, 600)
    if returncode:
        raise SystemExit(f"the tests cannot be collected without a change:\n{out[-2000:]}")
    return {line for line in out.splitlines() if "::" in line}


def _pytest(words: list[str], copy: Path, limit: float) -> tuple[int | None, str]:
    """Run pytest in a copy of the work tree; return how it ended, None after a time limit, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *words],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        out, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, out


def _copied(place: Path) -> Path:
    """Copy what git knows of the work tree."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for file in filter(None, files.split("\0")):
        if (ROOT / file).exists():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, place / file)
    return place


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
