"""Which tests run which line of the simulator, and how long each takes: measured once, and read ever after.

pytest-cov measures, by the dynamic contexts of coverage: it knows each worker of pytest-xdist.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import coverage

from tests.scenarios import ROOT

#: Rooms that are no simulator: they reach it through ``ipusim/api.py``.
OTHERS = ("app", "ipu")
#: Tests of pages in a browser, which has more memory than a change's tests have: the pages' data are tested elsewhere.
NOT_RUN = ("--ignore=tests/browser",)
#: In the folder of a map: which tests ran which line, and what each test took with the hashes of all modules.
LINES, TESTS = "coverage", "tests.json"


def modules() -> list[Path]:
    """Return the simulator's modules, from ``ipusim/`` on."""
    package = ROOT / "ipusim"
    rooms = sorted(room for room in package.iterdir() if room.is_dir() and room.name not in OTHERS)
    return [module.relative_to(package) for room in rooms for module in sorted(room.rglob("*.py"))]


def digest(module: Path) -> str:
    """Return a hash of a module's text."""
    return hashlib.sha256((ROOT / "ipusim" / module).read_bytes()).hexdigest()


def measure(folder: Path, words: list[str]) -> None:
    """Run the tests, with more words to pytest, and write into ``folder`` what the map is read from."""
    folder.mkdir(parents=True, exist_ok=True)
    lines, tests = (folder.resolve() / name for name in (LINES, TESTS))
    packages = sorted({module.parts[0] for module in modules()})
    texts = {module.as_posix(): digest(module) for module in modules()}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutations.times", "-n", "auto", "--dist", "worksteal"]
    command += [f"--cov=ipusim.{package}" for package in packages]
    command += ["--cov-context=test", "--cov-report=", *NOT_RUN, *words]
    environment = {**os.environ, "COVERAGE_FILE": str(lines), "COVERAGE_CORE": "ctrace", "TIMES_FILE": str(tests)}
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    seconds = json.loads(tests.read_text())
    tests.write_text(json.dumps({"words": words, "texts": texts, "seconds": seconds}, indent=0))


class RanLines:
    """The map in a folder, as :func:`measure` has written it.

    Attributes:
        seconds: what each test took that passed, by its name.
        words: what pytest was told besides.
    """

    def __init__(self, folder: Path) -> None:
        self._data = coverage.CoverageData(str(folder / LINES))
        self._data.read()
        content = json.loads((folder / TESTS).read_text())
        self.seconds: dict[str, float] = content["seconds"]
        self.words: list[str] = content["words"]
        self._texts: dict[str, str] = content["texts"]
        self._read: dict[Path, dict[int, list[str]]] = {}
        self._files = {Path(file).relative_to(ROOT / "ipusim"): file for file in self._data.measured_files()}

    def knows(self, module: Path) -> bool:
        """Return whether a module's text is that which was measured."""
        return self._texts.get(module.as_posix()) == digest(module)

    def tests(self, module: Path, lines: range) -> set[str]:
        """Return the tests that run any of a module's lines."""
        by_line = self._contexts(module)
        contexts = {context for line in lines for context in by_line.get(line, ())}
        return {test for test in (context.rpartition("|")[0] for context in contexts) if test in self.seconds}

    def imported(self, module: Path, lines: range) -> bool:
        """Return whether some of a module's lines ran in no test, as those do that run at import."""
        by_line = self._contexts(module)
        return any("" in by_line.get(line, ()) for line in lines)

    def _contexts(self, module: Path) -> dict[int, list[str]]:
        """Return what ran each of a module's lines, nothing of one that was not measured; it takes up to a second."""
        if module not in self._read:
            file = self._files.get(module)
            self._read[module] = self._data.contexts_by_lineno(file) if file else {}
        return self._read[module]

    def quickest(self, tests: set[str], module: Path, seconds: float) -> list[str]:
        """Return so many of ``tests`` as take no more than ``seconds``: one at least, the quickest first.

        Unit tests of the module's room come before all others: what a table of the room says, thousands of tests use,
        and these look at.
        """
        found: list[str] = []
        own, taken = f"tests/unit/{module.parts[0]}/", 0.0
        for test in sorted(tests, key=lambda test: (not test.startswith(own), self.seconds[test], test)):
            taken += self.seconds[test]
            if found and taken > seconds:
                break
            found.append(test)
        return found
