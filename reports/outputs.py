"""Command outputs on hand-written pages: find, compare and renew.

A ``text`` block directly below a ``console`` block shows the output of the last command, 100 columns wide. A line
``...`` stands for any number of omitted lines. A block with a file name as comment in its first line, such as
``# mine.yaml`` or ``# mine.yaml: a title``, is written to this file before the next command. So is a block below a
paragraph that ends with a file name, such as ``mine.yaml`` in backquotes and a colon.

``python -m reports.outputs [PAGES]`` from the top of the repository renews the outputs of these pages, or of all pages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from ipusim.base.files import write_file

ROOT = Path(__file__).parent.parent
#: Width of a shown output.
COLUMNS: Final = "100"
#: Pages with a single walk (commands run in order in one folder). On other pages every section has a walk.
WHOLE: Final = ("scenarios/tutorial.md",)
#: Line in place of omitted lines.
_LEFT_OUT: Final = "..."
#: Seconds of wall-clock time, different in each run.
_WALL_CLOCK: Final = re.compile(r"(?<= after )\d+\.\d s\b|(?<=, tested in )\d+\.\d s$", re.MULTILINE)
#: Minimum similarity of a shown line and the same line in a new output.
_SIMILAR: Final = 0.6

#: Heading of a section, or fenced block.
_HEADING_OR_BLOCK: Final = re.compile(
    r"^## (?P<heading>[^\n]+)$|^```(?P<language>\w*)\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL
)
#: First line of a block with the content of a file.
_FILE: Final = re.compile(r"# ([\w./-]+\.(?:yaml|py|csv))(?:: [^\n]*)?\n")
#: End of a paragraph above a block with the content of a file, and the fence of the block.
_FILE_ABOVE: Final = re.compile(r"`([\w./-]+\.(?:yaml|py|csv))`:\n\n```\w+\n\Z")
#: Command after an installation in a ``bash`` block.
_FIRST_RUN: Final = re.compile(r"\.venv/bin/(ipusim .+)")


class Block(NamedTuple):
    """Fenced block of a page. ``start`` and ``end`` delimit the content in the text of the page."""

    language: str
    content: str
    start: int
    end: int


@dataclass(frozen=True)
class Step:
    """Command on a page.

    Attributes:
        command: command line.
        files: contents of files to write before the command, by name.
        shown: block with the output of the command; None without a shown output.
        is_part: whether the block shows inner lines of the output, without ``...`` for the first and last lines.
    """

    command: str
    files: Mapping[str, str] = field(default_factory=dict)
    shown: Block | None = None
    is_part: bool = False

    @property
    def words(self) -> list[str]:
        """Words of the command after ``ipusim``, without a target file."""
        program, *words = shlex.split(self.command.partition(" > ")[0])
        assert program == "ipusim", f"a console block has another program: {self.command}"
        return words

    @property
    def file(self) -> str:
        """Target file of the output; empty for the terminal."""
        return self.command.partition(" > ")[2].strip()

    def is_printed(self, output: str) -> bool:
        """Return whether the shown block matches an output of the command."""
        assert self.shown is not None
        return _matches(self._with_ends(self.shown.content), output)

    def rewritten(self, output: str) -> str:
        """Return the shown block for a new output, with the same choice of lines if possible."""
        assert self.shown is not None
        if self.is_printed(output):
            return self.shown.content
        text = rewritten(self._with_ends(self.shown.content), output)
        omission = f"{_LEFT_OUT}\n"
        return text.removeprefix(omission).removesuffix(omission) if self.is_part else text

    def _with_ends(self, content: str) -> str:
        return f"{_LEFT_OUT}\n{content}{_LEFT_OUT}\n" if self.is_part else content


@dataclass(frozen=True)
class Walk:
    """Commands of a section or page, run in order in one folder."""

    page: str
    heading: str
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """Page and section."""
        return f"{self.page}: {self.heading}" if self.heading else self.page

    @property
    def shown_steps(self) -> tuple[Step, ...]:
        """Steps up to the last one with a shown output."""
        last = max((number for number, step in enumerate(self.steps) if step.shown), default=-1)
        return self.steps[: last + 1]


def pages(root: Path = ROOT) -> dict[str, str]:
    """Return the texts of all pages with tested commands, by path."""
    result = [root / "README.md", *sorted((root / "scenarios").glob("**/*.md"))]
    return {str(path.relative_to(root)): path.read_text() for path in result}


def blocks(text: str) -> Iterator[Block]:
    """Yield all fenced blocks of a page."""
    for result in _HEADING_OR_BLOCK.finditer(text):
        if result["heading"] is None:
            yield Block(result["language"], result["content"], *result.span("content"))


def command_lines(content: str) -> list[str]:
    """Return the commands of a console block, each on one line."""
    return [line.removeprefix("$ ") for line in re.sub(r" \\\n +", " ", content).splitlines()]


def named_files(text: str) -> dict[str, str]:
    """Return the contents of all named files on a page, by name."""
    return {name: block.content for block in blocks(text) if (name := _file_name(block, text))}


def _file_name(block: Block, text: str) -> str:
    """Return the name of the file with a block's content; empty for other blocks."""
    named_file = _FILE.match(block.content) or _FILE_ABOVE.search(text, max(0, block.start - 100), block.start)
    return named_file.group(1) if named_file else ""


def walks(page: str, text: str) -> list[Walk]:
    """Return the walks of a page, see ``WHOLE``."""
    parts: list[tuple[str, list[Step]]] = [("", [])]
    files: dict[str, str] = {}
    above: Block | None = None
    for result in _HEADING_OR_BLOCK.finditer(text):
        if result["heading"] is not None:
            if page not in WHOLE:
                parts.append((result["heading"], []))
                files = {}
            continue
        block = Block(result["language"], result["content"], *result.span("content"))
        steps = parts[-1][1]
        if block.language == "console":
            for command in command_lines(block.content):
                steps.append(Step(command, files))
                files = {}
        elif block.language == "bash" and (first := _FIRST_RUN.search(block.content)):
            steps.append(Step(first.group(1), files, is_part=True))
            files = {}
        elif block.language == "text" and above and _shows(above, block, text, steps):
            steps[-1] = Step(steps[-1].command, steps[-1].files, block, steps[-1].is_part)
        elif name := _file_name(block, text):
            files = {**files, name: block.content}
        above = block
    return [Walk(page, heading, tuple(steps)) for heading, steps in parts if steps]


def _shows(earlier: Block, block: Block, text: str, steps: Sequence[Step]) -> bool:
    """Return whether a text block is the output of the last step."""
    if not steps or steps[-1].shown:
        return False
    between = text[earlier.end : block.start].removeprefix("```").removesuffix("```text\n")
    return (earlier.language == "console" and not between.strip()) or (earlier.language == "bash" and steps[-1].is_part)


def _lines(text: str) -> list[str]:
    """Return the lines of an output without trailing blanks, and without empty lines at both ends."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def _chunks(text: str) -> list[list[str]]:
    """Return the lines of a shown output, split at omitted lines."""
    chunks: list[list[str]] = [[]]
    for line in _lines(text):
        if line.strip() == _LEFT_OUT:
            chunks.append([])
        else:
            chunks[-1].append(line)
    return chunks


def _matches(text: str, output: str) -> bool:
    chunks = ("".join(f"{line}\n" for line in chunk) for chunk in _chunks(text))
    pattern = "(?:.*\n)*".join(re.escape(_WALL_CLOCK.sub("0 s", chunk)) for chunk in chunks)
    actual = "".join(f"{line}\n" for line in _lines(_WALL_CLOCK.sub("0 s", output).rstrip(" ")))
    return re.fullmatch(pattern, actual) is not None


def rewritten(shown: str, output: str) -> str:
    """Return the lines of a new output that resemble the shown lines; all lines if a shown line is missing."""
    chunks, lines = _chunks(shown), _lines(output)
    while lines and not lines[0]:
        del lines[0]
    parts: list[list[str]] = []
    end = 0
    for number, chunk in enumerate(chunks):
        if not chunk:
            parts.append([])
            continue
        first = end if number == 0 else _closest(chunk[0], lines, end)
        last = len(lines) - 1 if number == len(chunks) - 1 else _closest(chunk[-1], lines, first)
        if first < 0 or last < 0:
            return "".join(f"{line}\n" for line in lines)
        parts.append(lines[first : last + 1])
        end = last + 1
    return f"{_LEFT_OUT}\n".join("".join(f"{line}\n" for line in part) for part in parts)


def _closest(text: str, lines: Sequence[str], start: int) -> int:
    """Return the index of the most similar line from ``start`` on; -1 without a similar line."""
    numbers = range(max(start, 0), len(lines))
    likeness = {number: SequenceMatcher(None, text, lines[number], autojunk=False).ratio() for number in numbers}
    best = max(numbers, key=lambda number: likeness[number], default=-1)
    return best if best >= 0 and start >= 0 and likeness[best] >= _SIMILAR else -1


#: Function that runs the command of a step in a folder, and returns exit code, standard output and standard error.
Runner = Callable[[Step, Path], tuple[int, str, str]]


def take(step: Step, folder: Path, run: Runner) -> str:
    """Write the files of a step, run its command in a folder, and return the output.

    Raises:
        ChildProcessError: for a failed command without a shown message.
    """
    for name, content in step.files.items():
        (folder / name).write_text(content)
    code, output, errors = run(step, folder)
    if code:  # else standard error has at most the progress of a long command, on a slow machine
        output += errors
    if code and not step.shown:
        raise ChildProcessError(f"{step.command}: exit code {code}\n{output}")
    if step.file:
        (folder / step.file).write_text(output)
        return ""
    return output


def _process(step: Step, folder: Path) -> tuple[int, str, str]:
    """Run a step's command as a process."""
    environment = {**os.environ, "COLUMNS": COLUMNS, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ipusim", *step.words]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return process.returncode, process.stdout, process.stderr


def renewed(page: str, text: str, run: Runner = _process) -> str:
    """Return a page with renewed outputs."""
    replaced: list[tuple[Block, str]] = []
    for walk in walks(page, text):
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "scenarios").symlink_to(ROOT / "scenarios")
            for step in walk.shown_steps:
                output = take(step, folder, run)
                if step.shown:
                    replaced.append((step.shown, step.rewritten(output)))
    for block, content in reversed(replaced):
        text = text[: block.start] + content + text[block.end :]
    return text


def write_outputs(names: Iterable[str] = ()) -> None:
    """Renew the outputs of pages, by default of all pages."""
    texts = pages()
    for name in [*names] or texts:
        text = renewed(name, texts[name])
        if text != texts[name]:
            write_file(ROOT / name, text.encode())
            print(f"{name}: outputs renewed")


if __name__ == "__main__":
    known = pages()
    if wrong := [name for name in sys.argv[1:] if name not in known]:
        sys.exit(f"{wrong[0]}: expected one of {', '.join(known)}")
    write_outputs(sys.argv[1:])
