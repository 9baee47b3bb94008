"""All changes that can be made to a module: one operator, constant or branch at a time."""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: What stands for each operator, and what it becomes.
OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.MatMult: ("@", "*"),
}
#: Functions that choose the other way.
CHOICES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}
#: From a line and a column in bytes to where that is in a file.
At = Callable[[int, int | None], int]
#: A keyword whose value checks only what holds.
CHECKED = "strict"


@dataclass(frozen=True)
class Change:
    """One change of a module's text.

    Attributes:
        path: the module's file, from the folder of the package on.
        start, end: of what is replaced, in bytes of the file.
        line: in which that begins, from 1 on.
        was, becomes: the text there, before and after.
    """

    path: Path
    start: int
    end: int
    line: int
    was: str
    becomes: str

    def made(self, content: bytes) -> bytes:
        """Return the file with the change made."""
        assert content[self.start : self.end].decode() == self.was
        return content[: self.start] + self.becomes.encode() + content[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.was.split())} -> {' '.join(self.becomes.split())}"


def changes_of(content: bytes, path: Path) -> list[Change]:
    """Return all changes of a file's text, sorted by where they stand; each is a module that still compiles."""
    begins = [0, *itertools.accumulate(map(len, content.splitlines(keepends=True)))]

    def at(line: int, column: int) -> int:
        return begins[line - 1] + column

    made = []
    for start, end, becomes in {*_replaced(ast.parse(content), content, at)}:
        was = content[start:end].decode()
        line = content.count(b"\n", 0, start) + 1
        made.append(Change(path, start, end, line, was, becomes))
    return sorted(made, key=lambda change: (change.start, change.end, change.becomes))


def _looked_at(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, but for annotations, decorators, type aliases and what only checks."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "format_spec"):
            continue
        for below in value if isinstance(value, list) else [value]:
            if not isinstance(below, ast.AST) or (isinstance(below, ast.keyword) and below.arg == CHECKED):
                continue
            if isinstance(below, ast.JoinedStr):  # where its parts stand, Python says from 3.12 on
                continue
            if isinstance(below, ast.If) and isinstance(below.test, ast.Name) and below.test.id == "TYPE_CHECKING":
                continue
            if isinstance(below, ast.Assign) and _is_type(below.value):
                continue
            if _is_free_size(node, below):
                yield below
                continue
            yield from _looked_at(below)


def _is_free_size(node: ast.AST, below: ast.AST) -> bool:
    """Return whether it is the size of ``reshape`` that follows from the others: NumPy takes any number below 0."""
    reshapes = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reshape"
    return reshapes and isinstance(below, ast.UnaryOp) and isinstance(below.op, ast.USub)


def _is_type(value: ast.expr) -> bool:
    """Return whether a value is a type in words: ``A | None``, ``Callable[[A], B]``, ``dict[str, A]``."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return _is_type(value.left) or _is_type(value.right)
    if isinstance(value, ast.Constant):
        return value.value is None
    of = value.value if isinstance(value, ast.Subscript) else value
    return isinstance(of, ast.Name) and (hasattr(builtins, of.id) or (of.id[:1].isupper() and not of.id.isupper()))


def _replaced(tree: ast.Module, content: bytes, at: At) -> Iterator[tuple[int, int, str]]:
    """Yield from where to where something is replaced, and by what."""
    for node in _looked_at(tree):
        match node:
            case ast.Compare():
                operands = [node.left, *node.comparators]
                for (left, right), operator in zip(itertools.pairwise(operands), node.ops, strict=True):
                    yield from _operator(content, _end(left, at), _start(right, at), operator)
            case ast.BoolOp():
                for left, right in itertools.pairwise(node.values):
                    yield from _operator(content, _end(left, at), _start(right, at), node.op)
            case ast.BinOp():
                yield from _operator(content, _end(node.left, at), _start(node.right, at), node.op)
            case ast.AugAssign():
                yield from _operator(content, _end(node.target, at), _start(node.value, at), node.op)
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
                yield _start(node, at), _start(node, at) + (3 if isinstance(node.op, ast.Not) else 1), ""
            case ast.If(test=test) | ast.IfExp(test=test):
                yield from _negated(test, content, at)
            case ast.comprehension():
                for test in node.ifs:
                    yield from _negated(test, content, at)
            case _:
                yield from _word_replaced(node, at)


def _word_replaced(node: ast.AST, at: At) -> Iterator[tuple[int, int, str]]:
    """Yield where a constant, a choice or the way out of a loop is replaced, and by what."""
    match node:
        case ast.Break() | ast.Continue():
            yield _start(node, at), _end(node, at), "continue" if isinstance(node, ast.Break) else "break"
        case ast.Constant(value=bool(value)):
            yield _start(node, at), _end(node, at), str(not value)
        case ast.Constant(value=int(value)):
            yield _start(node, at), _end(node, at), str(value + 1)
        case ast.Constant(value=float(value)):
            yield _start(node, at), _end(node, at), repr(value * 2 or 1.0)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as function) if name in CHOICES:
            yield _end(function, at) - len(name), _end(function, at), CHOICES[name]


def _start(node: ast.expr | ast.stmt, at: At) -> int:
    return at(node.lineno, node.col_offset)


def _end(node: ast.expr | ast.stmt, at: At) -> int:
    return at(node.end_lineno, node.end_col_offset)


def _negated(test: ast.expr, content: bytes, at: At) -> Iterator[tuple[int, int, str]]:
    """Turn a branch: what an operator at its top does as well is left to that."""
    single = isinstance(test, ast.Compare) and len(test.ops) == 1
    turned = single and isinstance(test.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn)
    if turned or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        return
    start, end = _start(test, at), _end(test, at)
    yield start, end, f"(not ({content[start:end].decode()}))"


def _operator(content: bytes, start: int, end: int, operator: ast.AST) -> Iterator[tuple[int, int, str]]:
    """Replace an operator, which stands between the end of its left operand and the start of its right one."""
    was, becomes = OPERATORS[type(operator)]
    begin = content.find(was.encode(), start, end)
    if begin >= 0 and b"#" not in content[start:end]:
        yield begin, begin + len(was), becomes
