"""A Python process of its own that answers several questions in turn: starting one for each takes a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

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
