"""Score of the house's English: how much of a sentence points elsewhere instead of naming its subject.

``python -m tests.prose`` prints the worst sentences and lowers scores in ``prose.csv`` to those of today.
"""

import ast
import csv
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from tests.scenarios import ROOT

TABLE: Final = Path(__file__).with_suffix(".csv")
#: Words that stand for a noun in another place; a sentence full of them cannot be read by itself.
POINTERS: Final = frozenset(
    """
    all alone anything both each everything it its itself none nothing one ones other others own same so something such
    that their them themselves then there these they this those what which who whom whose
    """.split()  # noqa: SIM905 - one word a line would take sixty lines
)
#: Words that join nouns; many of them in a sentence are a chain of conditions.
JOINTS: Final = frozenset(
    """
    a an and are as at be been before behind beside but by can did do does for from goes had has have if in into is lies
    made makes of on or stands than the to upon was were when where whether while with without
    """.split()  # noqa: SIM905 - one word a line would take sixty lines
)
#: Weight of a joint; a pointer weighs 1.
JOINT: Final = 0.25
#: Score above which a sentence wants other words.
HIGH: Final = 0.4
#: A string of Python's, or a comment: a tenth of the time of tokens.
STRING_OR_COMMENT: Final = re.compile(
    r'''"""(?:[^"\\]+|\\.|"(?!""))*"""|"(?:[^"\\\n]+|\\.)*"|'(?:[^'\\\n]+|\\.)*'|#[^\n]*''', re.DOTALL
)
#: Sentences of fewer words are labels, and of more words are lists.
LENGTHS: Final = range(6, 46)


class Sentence(NamedTuple):
    """A sentence of a docstring, comment or page."""

    score: float
    path: Path
    line: int
    text: str


class Score(NamedTuple):
    """Scores of a room: the median, and the share of sentences above HIGH."""

    median: float
    high: float


def score(sentence: str) -> float | None:
    """Return the weighted share of pointers and joints; None for labels and lists."""
    words = re.findall(r"[a-z`']+", sentence.lower())
    if len(words) not in LENGTHS:
        return None
    return sum(1.0 if word in POINTERS else JOINT * (word in JOINTS) for word in words) / len(words)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements of a module, and nothing of what they compute, in which no function is defined."""
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        within = getattr(node, part, None)
        for each in within if isinstance(within, list) else ():
            yield each
            yield from statements(each)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of docstrings and comments of a module, or of paragraphs of a page."""
    source = path.read_text()
    if path.suffix == ".md":
        for match in re.finditer(r"```.*?```|(?:^(?!\||```).+\n?)+", source, re.MULTILINE | re.DOTALL):
            if not match[0].startswith("```"):
                text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", match[0])
                yield source.count("\n", 0, match.start()) + 1, text
        return
    tree = ast.parse(source)
    for node in (tree, *statements(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            yield getattr(node, "lineno", 1), docstring.partition(">>>")[0]
    for match in STRING_OR_COMMENT.finditer(source):
        if match[0].startswith("#"):
            yield source.count("\n", 0, match.start()) + 1, match[0].lstrip("#: ")


def sentences(path: Path) -> Iterator[Sentence]:
    """Yield the scored sentences of a file."""
    for line, text in prose(path):
        for sentence in re.split(r"(?<=[.:;?!])\s+", " ".join(text.split())):
            value = score(sentence)
            if value is not None:
                yield Sentence(value, path, line, sentence)


def room(path: Path) -> str:
    """Return the folder of a module below ``ipusim`` or ``ipusim/app``, ``reports``, or the page itself."""
    parts = path.relative_to(ROOT).parts
    if path.suffix == ".md":
        return "/".join(parts)
    return "/".join(parts[: 3 if parts[1] == "app" else 2][: len(parts) - 1])


def rooms() -> Mapping[str, list[Sentence]]:
    """Return the sentences of every room, the worst first."""
    found: dict[str, list[Sentence]] = defaultdict(list)
    modules = (path for folder in ("ipusim", "reports") for path in (ROOT / folder).rglob("*.py"))
    pages = (path for pattern in ("*.md", "scenarios/*.md", "ipusim/**/*.md") for path in ROOT.glob(pattern))
    for path in (*modules, *pages):
        found[room(path)].extend(sentences(path))
    return {name: sorted(found[name], key=lambda one: (-one.score, one.path, one.line)) for name in sorted(found)}


def scores(sentences_of: Mapping[str, list[Sentence]]) -> dict[str, Score]:
    """Return the scores of rooms with sentences, rounded up to hundredths: a sentence more or less changes little."""
    return {
        name: Score(
            math.ceil(100 * statistics.median(sentence.score for sentence in listed)) / 100,
            math.ceil(100 * sum(sentence.score > HIGH for sentence in listed) / len(listed)) / 100,
        )
        for name, listed in sentences_of.items()
        if listed
    }


def table() -> dict[str, Score]:
    """Return the committed scores."""
    with TABLE.open(newline="") as file:
        return {row["room"]: Score(float(row["median"]), float(row["high"])) for row in csv.DictReader(file)}


def risen() -> list[str]:
    """Return a line for every room whose score is above that of the table, with the room's worst sentences."""
    listed, allowed = rooms(), table()
    lines = []
    for name, now in scores(listed).items():
        before = allowed.get(name, Score(0.15, 0.01))
        if now.median > before.median or now.high > before.high:
            worst = "\n".join(f"  {each.path.relative_to(ROOT)}:{each.line}: {each.text}" for each in listed[name][:5])
            lines.append(f"{name}: {now}, at most {before}\n{worst}")
    return lines


def write_table() -> None:
    """Write the scores of today, and of every room at most the score that the table has."""
    allowed = table() if TABLE.exists() else {}
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("room", *Score._fields))
        for name, now in scores(rooms()).items():
            before = allowed.get(name, now)
            writer.writerow((name, *(min(pair) for pair in zip(now, before, strict=True))))


if __name__ == "__main__":
    for sentence in sorted(chain.from_iterable(rooms().values()), reverse=True)[:20]:
        sys.stdout.write(f"{sentence.score:.2f} {sentence.path.relative_to(ROOT)}:{sentence.line}: {sentence.text}\n")
    write_table()
