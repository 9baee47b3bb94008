"""Run public programs for Graphcore's TensorFlow with ipusim, and write the file of outcomes.

``python -m reports.public_programs FOLDER`` runs all programs of ``public_programs.csv`` unchanged, with ``ipusim run``
and the arguments of their rows, and writes outcomes into that file. FOLDER holds a checkout of each repository at each
commit, named like ``tutorials@98d9548``. An optional second argument selects programs by a part of their paths; other
programs keep their outcomes. ``--further`` runs the programs of ``further_programs.csv``, chosen by the rule in
``further_programs.txt`` before any of them was run. This repository contains no text of these programs.

Some programs are too long for their arguments. A need such as ``data: 640 images of mnist, generated`` makes the run
small: Keras' folder of the run then has files with 640 images for training and 640 for tests, as a user's own files.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import pickle
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

#: File of outcomes for programs of Graphcore's repositories.
OUTCOMES: Final = Path(__file__).parent / "public_programs.csv"
#: File of outcomes for further programs.
FURTHER: Final = OUTCOMES.with_name("further_programs.csv")
#: Limit of the processor time of each process, in seconds.
_LIMIT: Final = 300
#: Limit of the elapsed time of a program, in seconds, for programs that wait forever.
_IDLE_LIMIT: Final = 3600
#: Line of a Python error.
_ERROR_LINE: Final = re.compile(r"^\s*[\w.]*(?:Error|Exception): .*\S", re.MULTILINE)
#: Maximum length of a message on the page, in characters.
_SHOWN: Final = 200


class Outcome(StrEnum):
    """Outcome of a program, in the words of the page."""

    RUNS = "runs"
    DIFFERS = "differs"
    REFUSED = "refused"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Program:
    """Public program with its last outcome.

    Attributes:
        repository: GitHub repository, as ``owner/name``.
        commit: first seven digits of the commit.
        path: path of the file in the repository.
        arguments: arguments that make the program small.
        prints: regular expression for the output of a correct run, from the program's text; empty if the text announces
            no output.
        needs: requirements outside the simulation of an IPU, such as compiled C++; empty for none.
        outcome: outcome of the last run.
        why: refusal of the last run with its file and line, missing output, or exceeded time limit.
        state: commit of ipusim of the last run.
        first: outcome of the first run, and its commit of ipusim; empty if not recorded.
    """

    repository: str
    commit: str
    path: str
    arguments: str
    prints: str
    needs: str
    outcome: Outcome
    why: str
    state: str
    first: str = ""

    @property
    def link(self) -> str:
        """GitHub page of the program."""
        return f"https://github.com/{self.repository}/blob/{self.commit}/{self.path}"

    @property
    def needs_nothing(self) -> bool:
        """Whether the program runs without other packages or files; generated data and import paths are provided."""
        return all(re.fullmatch(r"(data: .*, generated|PYTHONPATH=.*)?", need) for need in self.needs.split("; "))

    @property
    def images(self) -> tuple[int, str] | None:
        """Number of generated images for training and as many for tests, and their dataset; None for no such need."""
        found = re.search(r"data: (\d+) images of (\w+), generated", self.needs)
        return None if found is None else (int(found[1]), found[2])

    @property
    def checkout(self) -> str:
        """Folder name of the repository's checkout."""
        return f"{self.repository.rpartition('/')[2]}@{self.commit}"


def read_programs(file: Path = OUTCOMES) -> tuple[Program, ...]:
    """Read the programs of a file of outcomes, in file order."""
    with file.open(newline="", encoding="utf-8") as lines:
        return tuple(Program(**{**row, "outcome": Outcome(row["outcome"])}) for row in csv.DictReader(lines))


def as_csv(programs: Sequence[Program]) -> str:
    """Return the text of a file of outcomes.

    First outcomes have a column if any is recorded.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [field.name for field in fields(Program)][: None if any(program.first for program in programs) else -1]
    writer.writerow(columns)
    writer.writerows(astuple(program)[: len(columns)] for program in programs)
    return text.getvalue()


def judged(program: Program, code: int | None, out: str, err: str) -> Program:
    """Return a program with the outcome of a run.

    Args:
        program: program before the run.
        code: exit code of ``ipusim run``; the negative number of ``SIGXCPU`` after the limit of processor time, None
            after the limit of elapsed time.
        out: standard output.
        err: standard error.
    """
    if code in (None, -signal.SIGXCPU):
        limit = f"{_IDLE_LIMIT} s" if code is None else f"{_LIMIT} s of processor time"
        return replace(program, outcome=Outcome.UNDECIDED, why=f"not done after {limit}")
    if code:
        *_, last = err.strip().splitlines() or [f"exit code {code}"]
        *_, error = [last, *re.findall(_ERROR_LINE, err)]  # TensorFlow adds lines on a node's origin to an error
        return replace(program, outcome=Outcome.REFUSED, why=_message(program, error))
    if not re.search(program.prints, out + err):
        return replace(program, outcome=Outcome.DIFFERS, why=f"prints nothing such as {program.prints}")
    return replace(program, outcome=Outcome.RUNS, why="")


def _message(program: Program, line: str) -> str:
    """Return a message with paths relative to the checkout."""
    line = re.sub(rf"\S*{re.escape(program.checkout)}/", "", line).replace(f"{Path(program.path).parent}/", "")
    line = re.sub(r" at 0x[0-9a-f]+", "", line)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} ..."


def run(program: Program, folder: Path) -> Program:
    """Run a program in its checkout, and return the program with the outcome."""
    file = (folder / program.checkout / program.path).resolve()
    import_path = re.search(r"PYTHONPATH=(\S+)", program.needs)
    path = {"PYTHONPATH": str(file.parent / import_path[1])} if import_path else {}
    with TemporaryDirectory() as temporary:
        if program.images is not None:
            write_images(Path(temporary, ".keras", "datasets"), *program.images)
        command = [sys.executable, "-m", "ipusim", "run", str(file), "--out", f"{temporary}/results", "--quiet"]
        try:
            process = subprocess.run(
                [*command, "--", *shlex.split(program.arguments)],
                cwd=file.parent,
                capture_output=True,
                text=True,
                check=False,
                timeout=_IDLE_LIMIT,
                preexec_fn=_limit_processor_time,
                env={**os.environ, "HOME": temporary, **path},
            )
        except subprocess.TimeoutExpired:
            return judged(program, None, "", "")
    return judged(program, process.returncode, process.stdout, process.stderr)


def write_images(folder: Path, count: int, dataset: str) -> None:
    """Write ``count`` training and ``count`` test images in the files of a Keras dataset.

    Args:
        folder: Keras' folder of datasets, such as ``~/.keras/datasets``.
        count: number of training images, and of test images.
        dataset: ``mnist``, ``fashion_mnist`` or ``cifar10``.
    """
    draw = np.random.default_rng(1)
    shape = (3 * 32 * 32,) if dataset == "cifar10" else (28, 28)
    train, test = ((draw.integers(0, 256, (count, *shape), np.uint8), draw.integers(0, 10, count)) for _ in range(2))
    folder.mkdir(parents=True)
    if dataset == "mnist":
        np.savez(folder / "mnist.npz", x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])
        return
    files: dict[str, bytes] = {}
    if dataset == "fashion_mnist":
        for part, (x, y) in (("train", train), ("t10k", test)):
            for kind, values in (("images-idx3", x), ("labels-idx1", y.astype(np.uint8))):
                head = bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes()
                files[f"fashion-mnist/{part}-{kind}-ubyte.gz"] = gzip.compress(head + values.tobytes())
    else:
        fifths = {f"data_batch_{part + 1}": (train[0][part::5], train[1][part::5]) for part in range(5)}
        for name, (x, y) in {**fifths, "test_batch": test}.items():
            files[f"cifar-10-batches-py/{name}"] = pickle.dumps({b"data": x, b"labels": y.tolist()})
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def _limit_processor_time() -> None:
    """Limit the processor time of this process and its children."""
    resource.setrlimit(resource.RLIMIT_CPU, (_LIMIT, _LIMIT + 10))


def state() -> str:
    """Return the commit of this checkout of ipusim, with a plus for uncommitted changes."""
    git = ["git", "-C", str(OUTCOMES.parent), "describe", "--always", "--abbrev=7", "--exclude=*", "--dirty=+"]
    return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()


def main(folder: Path, part: str = "", file: Path = OUTCOMES) -> None:
    """Run programs with ``part`` in their path, and write outcomes after each."""
    programs, commit = list(read_programs(file)), state()
    for position, program in enumerate(programs):
        if part in program.path:
            ran = replace(run(program, folder), state=commit)
            if ran.why and program.why.startswith(ran.why):
                ran = replace(ran, why=program.why)  # a remark added by hand stays with the same message
            first = f"{ran.outcome} at {commit}" if file == FURTHER else ""
            programs[position] = replace(ran, first=program.first or first)
            file.write_text(as_csv(programs), encoding="utf-8")
            print(
                f"{programs[position].outcome:8} {program.checkout}/{program.path}: {programs[position].why}",
                flush=True,
            )


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--further"]
    if len(words) not in (1, 2):
        sys.exit("python -m reports.public_programs FOLDER [PART] [--further]: FOLDER holds tutorials@98d9548 ...")
    main(Path(words[0]), *words[1:], file=OUTCOMES if len(words) == len(sys.argv) - 1 else FURTHER)
