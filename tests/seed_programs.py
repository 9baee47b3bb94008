"""Programs of the seeds, the texts that the project began with: taken out of them as they stand, and surrounded.

No text of the seeds is in this repository. A file of ``tests/seeds/`` whose name begins with a seed's number is one
program: what surrounds a fragment, and checks of the effect that the seed states, in Python. In it, with the
indentation that the lines shall have,

- ``@ 002 337-349 1a2b3c4d`` stands for lines 337 to 349 of the seed 002, whose text has that hash;
- ``@ include mnist`` stands for the file ``mnist.txt`` beside it.

It begins with a line ``#:`` on what it is, where the text has something that no program can have too, and with
``#: hosts: 2`` or ``#: arguments: --splits dense128`` where it is run so.

The seeds stand in ``../shared/seeds`` beside the checkout or beside a folder above it, or where the environment
variable ``IPUSIM_SEEDS`` says.
"""

import hashlib
import os
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROGRAMS = Path(__file__).parent / "seeds"
_PIECE = re.compile(
    r"(?P<indent> *)@ (?:include (?P<name>\w+)|(?P<seed>\d{3}) (?P<first>\d+)-(?P<last>\d+) (?P<hash>\w{8}))"
)


@dataclass(frozen=True)
class SeedProgram:
    """A program that is made of a fragment of a seed.

    Attributes:
        name: of its file.
        about: its first line.
        text: the whole program.
        arguments: behind the program.
        hosts: on which it runs; None for a program that runs alone.
    """

    name: str
    about: str
    text: str
    arguments: tuple[str, ...]
    hosts: int | None


def seeds_folder() -> Path | None:
    """Return the folder of the seeds, None where there is none."""
    if "IPUSIM_SEEDS" in os.environ:
        return Path(os.environ["IPUSIM_SEEDS"])
    folders = (parent / "shared" / "seeds" for parent in PROGRAMS.resolve().parents[2:])
    return next((folder for folder in folders if folder.is_dir()), None)


def names() -> list[str]:
    """Return the names of all programs."""
    return sorted(path.stem for path in PROGRAMS.glob("[0-9]*.txt"))


def seed_program(name: str, folder: Path) -> SeedProgram:
    """Return a program, its fragments taken out of the seeds in ``folder``."""
    about, *options = re.findall(r"^#: (.*)$", _written(name), re.MULTILINE)
    found = dict(option.split(": ", 1) for option in options)
    arguments = tuple(found.get("arguments", "").split())
    return SeedProgram(name, about, _whole(name, folder), arguments, int(found["hosts"]) if "hosts" in found else None)


def _written(name: str) -> str:
    return (PROGRAMS / f"{name}.txt").read_text(encoding="utf-8")


def _whole(name: str, folder: Path) -> str:
    lines = []
    for line in _written(name).splitlines():
        piece = _PIECE.fullmatch(line)
        if piece is None:
            lines.append(line)
            continue
        text = _whole(piece["name"], folder) if piece["name"] else _cut(piece, folder)
        lines.append(textwrap.indent(textwrap.dedent(text), piece["indent"]))
    return "\n".join(lines)


def _cut(piece: re.Match[str], folder: Path) -> str:
    """Return lines of a seed, without the numbers that listings have before each."""
    lines = _lines(folder, piece["seed"])[int(piece["first"]) - 1 : int(piece["last"])]
    found = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    assert found == piece["hash"], f"{piece[0].strip()}: these lines of the seed have the hash {found} now"
    numbers = [re.match(r" ?(\d+)", line) for line in lines]
    if all(numbers) and [int(number[1]) for number in numbers if number] == [
        *range(int(numbers[0][1]), int(numbers[0][1]) + len(lines))  # type: ignore[index]
    ]:
        width = len(max((number[0] for number in numbers if number), key=len))
        lines = [line[width:] for line in lines]
    return "\n".join(lines)


@cache
def _lines(folder: Path, seed: str) -> tuple[str, ...]:
    (path,) = folder.glob(f"{seed}_*.txt")
    return tuple(path.read_text(encoding="utf-8").split("\n"))
