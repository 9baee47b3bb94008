"""The package with changes that tests make to it, asked in a Python process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.scenarios import ROOT

#: Reads questions, a line of JSON each, runs their code as a program's, and writes an answer for each.
ANSWERING = """
import contextlib, io, json, os, sys, traceback

answers = sys.stdout
for line in sys.stdin:
    code, sys.argv, folder = json.loads(line)
    os.chdir(folder)
    out, err, returncode = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(compile(code, "<question>", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            returncode = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
            returncode = 1
    print(json.dumps([returncode, out.getvalue(), err.getvalue()]), file=answers, flush=True)
"""


class Interpreter:
    """A fresh Python, in which warnings are errors; used with ``with``.

    Args:
        environment: variables that it has besides this process's own.
        first: code that it runs before the first question.
    """

    def __init__(self, first: str = "", **environment: str) -> None:
        # What is compiled from folders of a test's own need not be kept.
        own = {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200", **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", first + ANSWERING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **own},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def run(self, code: str, *words: object, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run ``code`` with ``words`` as its arguments in ``folder``; return what a process of its own would."""
        question = json.dumps([code, ["-c", *map(str, words)], str(folder)])
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        return subprocess.CompletedProcess([*map(str, words)], *json.loads(self.process.stdout.readline()))


#: Takes a module from the folder that is named if it is there, and else, compiled, from the package itself.
FINDER = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

def changed(name, *_):
    path = Path({place!r}, *name.split(".")).with_suffix(".py")
    return spec_from_file_location(name, path) if path.exists() else None

sys.meta_path.insert(0, SimpleNamespace(find_spec=changed))
"""


class ChangedPackage:
    """The package of which some modules have another text, or are new; they lie in a folder, and the others do not.

    Args:
        place: the folder, in which ``ipusim`` has the modules.
    """

    def __init__(self, place: Path) -> None:
        self.place = place

    def write(self, file: str, text: str) -> None:
        """Give a module a text."""
        path = self.place / "ipusim" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def read(self, file: str) -> str:
        """Return the text of a module, with its changes."""
        path = self.place / "ipusim" / file
        return (path if path.exists() else ROOT / "ipusim" / file).read_text("utf-8")

    def put(self, file: str, anchor: str, text: str) -> None:
        """Put ``text`` in place of ``anchor``, which stands in the module once."""
        whole = self.read(file)
        assert whole.count(anchor) == 1, (file, anchor)
        self.write(file, whole.replace(anchor, text))

    def add(self, file: str, text: str) -> None:
        """Write ``text`` below what a module has."""
        self.write(file, self.read(file) + text)

    def leave_pictures_out(self) -> None:
        """Draw no pictures of runs, which takes longer than they do: for tests that look at none."""
        text = "picture_makers = lambda *_: []\npictures_of = lambda *_, **_options: {}\n"
        self.write("app/run_folder/pictures.py", text)

    def python(self) -> Interpreter:
        """Return a Python that has the changes."""
        return Interpreter(FINDER.format(place=str(self.place)), PYTHONPATH=str(ROOT))
