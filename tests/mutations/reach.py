"""Which tests a change concerns: those that run its line, or what is made at import of it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.mutations.ran import RanLines, modules
from tests.scenarios import ROOT

#: Over how many tables, made of each other at import, a change is followed.
_TABLES = 3
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def concerned(module: Path, line: int, ran: RanLines) -> set[str]:
    """Return the tests that run the statement in a line of a module, or what uses the name that it sets at import."""
    return _concerned(module, line, ran, _TABLES)


@cache
def _concerned(module: Path, line: int, ran: RanLines, tables: int) -> set[str]:
    road = _road(module, line)
    if not road:
        return set()
    lines = _lines(road[-1])
    tests = ran.tests(module, lines)
    if tests or not ran.imported(module, lines):
        return tests
    if isinstance(road[-1], _FUNCTION):  # a default of an argument
        return ran.tests(module, range(road[-1].body[0].lineno, _last(road[-1]) + 1))
    for name in _names(road) if tables else ():
        for user, number in _mentions(name):
            if (user, number) != (module, line):
                tests |= _concerned(user, number, ran, tables - 1)
    return tests or ran.tests(module, range(1, len(_text(module)) + 1))


def _road(module: Path, line: int) -> list[ast.stmt]:
    """Return the statements around a line, from the outermost to that which stands there."""
    road: list[ast.stmt] = []
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= _last(node):
            road.append(node)
    return sorted(road, key=lambda node: (node.lineno, -_last(node)))


def _lines(statement: ast.stmt) -> range:
    """Return the lines of a statement, without those of its body."""
    body = getattr(statement, "body", None)
    return range(statement.lineno, body[0].lineno if body else _last(statement) + 1)


def _last(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _names(road: list[ast.stmt]) -> list[str]:
    """Return the names that the innermost statement with any sets."""
    for statement in reversed(road):
        match statement:
            case ast.Assign(targets=targets):
                return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                return [name]
            case ast.ClassDef(name=name):
                return [name]
    return []


@cache
def _text(module: Path) -> list[str]:
    return (ROOT / "ipusim" / module).read_text("utf-8").splitlines()


@cache
def _tree(module: Path) -> ast.Module:
    return ast.parse("\n".join(_text(module)))


@cache
def _mentions(name: str) -> list[tuple[Path, int]]:
    """Return where the simulator's modules mention a name, but for what imports it."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    return [
        (module, number)
        for module in modules()
        for number, line in enumerate(_text(module), 1)
        if word.search(line) and not line.lstrip().startswith(("from ", "import ", "#"))
    ]
