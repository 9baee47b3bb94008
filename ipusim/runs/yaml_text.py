"""Read YAML 1.2 as plain data, with the positions of keys, values and problems; and write YAML."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.representer import SafeRepresenter

from ipusim.runs.places import Place, PlacedProblem
from ipusim.runs.problems import KeyPath, dotted, show

#: Line width of an edited scenario, large enough to keep all lines unbroken.
_EDITED_WIDTH: Final = 4096
#: Deepest nesting; the schema needs five levels.
MAX_DEPTH: Final = 16
#: Approximate line width of written YAML.
_DUMPED_WIDTH: Final = 120
#: Text that needs no quotes.
_UNQUOTED: Final = re.compile(r"[\w./][\w./ :()-]*[\w)]|\w")
#: Beginning of the tags that YAML itself defines.
_TAG: Final = "tag:yaml.org,2002:"
#: Tags that YAML 1.2's core schema gives to plain scalars.
_TYPE_TAGS: Final = (f"{_TAG}int", f"{_TAG}float", f"{_TAG}bool")
#: Tags of older YAML versions that plain text may match; YAML 1.2 reads such text as text.
_TEXT: Final = tuple(_TAG + name for name in ("str", "timestamp", "merge", "value"))


class Located:
    """Reader of YAML as plain data, with positions and problems."""

    def __init__(self, source: str, place: Place | None = None) -> None:
        """Read the file ``source``; for an override, every position is ``place``."""
        self.values: dict[KeyPath, Place] = {}
        self.keys: dict[KeyPath, Place] = {}
        self.problems: list[PlacedProblem] = []
        self._source = source
        self._fixed_place = place
        self._yaml = YAML(typ="safe", pure=True)
        self._yaml.max_depth = MAX_DEPTH

    def read(self, text: str, path: KeyPath = ()) -> Any:
        """Return the data of ``text``, the value at ``path``; None for an empty or invalid text."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about anchors used twice; all anchors are problems below
                node = self._yaml.compose(text)
            return None if node is None else self._value(node, path)
        except ReaderError as error:
            offset = error.position if isinstance(error.position, int) else 0
            start = text[:offset]
            position = Place(self._source, start.count("\n") + 1, offset - (start.rfind("\n") + 1) + 1)
            self._record(position, path, f"expected text, got the control character {error.character!r}")
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            position = Place(self._source) if mark is None else self._place_of(mark)
            self._record(position, path, _syntax(error, text))
        except YAMLError as error:
            self._record(None, path, f"this is not YAML: {error}")
        return None

    def _place_of(self, mark: Any) -> Place:
        return self._fixed_place or Place(self._source, mark.line + 1, mark.column + 1)

    def _record(self, position: Place | None, path: KeyPath, text: str) -> None:
        self.problems.append(PlacedProblem(self._fixed_place or position or Place(self._source), dotted(path), text))

    def _value(self, node: Node, path: KeyPath) -> Any:
        # The mark of an empty value is the next token's mark; the position of its key is more helpful.
        is_empty = isinstance(node, ScalarNode) and node.value == "" and node.style is None
        position = (self.keys.get(path) if is_empty else None) or self._place_of(node.start_mark)
        self.values[path] = position
        if node.anchor is not None:
            self._record(
                position, path, f"expected the value, got an anchor or alias ({node.anchor}): write the value out"
            )
            return None
        match node:
            case MappingNode():
                return self._mapping(node, path)
            case SequenceNode():
                return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
            case ScalarNode():
                return self._scalar(node, path, position)
        raise TypeError(f"a YAML node of an unknown kind: {node!r}")

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            position = self._place_of(key.start_mark)
            if not isinstance(key, ScalarNode):
                self._record(position, path, "expected a name as key, got a list or a mapping")
                continue
            inner = (*path, key.value)
            if key.value in data:
                first = self.keys[inner]
                self._record(position, inner, f"expected each key once, got this key a second time (first at {first})")
                continue
            self.keys[inner] = position
            if number := _decimal_comma(node, len(data)):
                self._record(position, path, f"expected a key, got {key.value!r}; did you mean {number}, with a point?")
            data[key.value] = self._value(value, inner)
        return data

    def _scalar(self, node: ScalarNode, path: KeyPath, position: Place) -> Any:
        tag = str(node.tag)
        if tag == f"{_TAG}null":
            return None
        if tag in _TEXT:
            return node.value
        if tag not in _TYPE_TAGS:
            self._record(position, path, f"expected a plain value, got one with the tag {tag}")
            return None
        try:
            return self._yaml.constructor.construct_object(node)
        except (ValueError, OverflowError, KeyError):
            self._record(position, path, f"expected a number of ordinary length, got {show(node.value)}")
            return None


class _PlainRepresenter(SafeRepresenter):
    """Representer that omits quotes around a text only if every YAML reader must take it for text."""

    def represent_str(self, data: str) -> Any:
        """Return the node of a text; the library adds quotes to texts that look like numbers."""
        return self.represent_scalar(f"{_TAG}str", data, style=None if _UNQUOTED.fullmatch(data) else '"')

    def ignore_aliases(self, _: Any) -> bool:
        """Write repeated values in full, as anchors cannot be read back."""
        return True


_PlainRepresenter.add_representer(str, _PlainRepresenter.represent_str)


def dump(data: Mapping[str, Any]) -> str:
    """Return plain data as YAML that :class:`Located` reads back unchanged.

    Keys keep their order.

    Short mappings and lists of plain values go on one line.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _PlainRepresenter
    yaml.default_flow_style, yaml.width = None, _DUMPED_WIDTH
    yaml.representer.sort_base_mapping_type_on_output = False
    text = io.StringIO()
    yaml.dump(dict(data), text)
    return text.getvalue()


#: Pattern of a key.
_KEY: Final = re.compile(r"(?:- )?[\w.-]+")
#: Pattern of a key without a space after its colon.
_KEY_WITHOUT_SPACE: Final = re.compile(r"(?:- )?[\w.-]+:[^\s/]")
#: Message for a text that begins with > or |, which begins a block of text in YAML.
_BLOCK: Final = (
    'expected a text in quotes where it begins with > or |, which YAML takes for a block of text: write ">= 0.9 M", '
    "or at least 0.9 M"
)
#: Messages for frequent mistakes, by a part of the YAML reader's message.
_PLAIN_MESSAGES: Final = {
    "maximum depth": f"expected at most {MAX_DEPTH} levels of mappings and lists, got more",
    "found character '\\t'": "expected spaces, got a tab: YAML indents with spaces",
    "mapping values are not allowed": (
        "expected no further ': ' here: check the indentation, or put a text that holds ': ' in quotes"
    ),
    "<block end>, but found '-'": "expected a key as in the lines above, got '-': in a list every item begins with '-'",
    "chomping or indentation indicators": _BLOCK,
    "expected a comment or a line break": _BLOCK,
    "found character '>'": _BLOCK,
    "another document": "expected one document in a file, got a second one after '---'",
}


def _decimal_comma(node: MappingNode, index: int) -> str:
    """Return the number that a mapping in braces has split at its decimal comma; empty for another cause.

    ``index`` is the index of the key after the comma.
    """
    if not node.flow_style or not index:
        return ""
    (_, first), (key, value) = node.value[index - 1 : index + 1]
    scalars = all(isinstance(scalar, ScalarNode) for scalar in (first, key, value))
    if not scalars or value.value or not (first.value.lstrip("+-").isdecimal() and key.value.isdecimal()):
        return ""
    return f"{first.value}.{key.value}"


def _mistake_in_previous_line(error: MarkedYAMLError, text: str) -> str:
    """Return the message for a misplaced ': ' whose cause is the previous line; empty for another cause."""
    mark = error.problem_mark
    if mark is None:
        return ""
    lines = text.splitlines()
    line = lines[mark.line]
    earlier_lines = [(index, row) for index, row in enumerate(lines[: mark.line]) if row.strip()]
    key = line[: mark.column]
    if not earlier_lines or ": " in key or not _KEY.fullmatch(key.strip()):
        return ""
    number, previous = earlier_lines[-1][0] + 1, earlier_lines[-1][1].strip()
    if _KEY_WITHOUT_SPACE.match(previous):
        return f"expected a space after the colon of line {number}, got {show(previous)}"
    if ":" not in previous:
        return f"expected a colon after the key of line {number}, got {show(previous)}"
    indents = [len(row) - len(row.lstrip()) for row in (line, earlier_lines[-1][1])]
    if indents[0] > indents[1]:
        return (
            f"expected {key.strip()!r} with the indentation of line {number}, {show(previous)}, which has a value, "
            f"got {indents[0] - indents[1]} more spaces"
        )
    return ""


def _syntax(error: MarkedYAMLError, text: str) -> str:
    """Return the message for a mistake in the syntax of a text."""
    problem = str(error.problem)
    if "mapping values are not allowed" in problem and (cause := _mistake_in_previous_line(error, text)):
        return cause
    if "could not find expected ':'" in problem and error.context_mark is not None:
        number = error.context_mark.line
        line = text.splitlines()[number].strip()
        return f"expected 'key: value', got a line without a colon, line {number + 1}: {show(line)}"
    for fragment, message in _PLAIN_MESSAGES.items():
        if fragment in problem:
            return message
    if "undefined alias" in problem:
        return f"expected the value itself, got {problem.removeprefix('found undefined ')}: write it out"
    context = f" ({error.context})" if error.context else ""
    begin, end = error.context_mark, error.problem_mark
    if error.context and begin is not None and end is not None and begin.line != end.line:
        context = f" ({error.context} that begins on line {begin.line + 1})"
    return f"this is not YAML: {problem}{context}"


def edited(text: str, changes: Mapping[KeyPath, tuple[Any, str]]) -> str:
    """Return ``text`` with changed options and a comment after each; existing comments stay.

    If the new value is None, the key is deleted. Missing mappings on the path of an option are created.
    """
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = _EDITED_WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    data = yaml.load(text)
    for path, (value, comment) in changes.items():
        level, parent = data, None
        for key in path[:-1]:
            if isinstance(level, CommentedMap) and key not in level:
                if value is None:
                    break
                level[key] = CommentedMap()
            level = level[key]
        else:
            parent = level
        if parent is None:
            continue
        if value is None:
            parent.pop(path[-1], None)
            continue
        parent[path[-1]] = _in_one_line(value) if isinstance(value, list) else value
        if comment:
            _comment(parent, path[-1], comment)
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def _in_one_line(items: list[Any]) -> CommentedSeq:
    sequence = CommentedSeq(items)
    sequence.fa.set_flow_style()
    return sequence


def _comment(mapping: Any, key: Any, comment: str) -> None:
    """Put ``comment`` after the value of ``key``, before an old comment; a mapping in braces becomes a block."""
    mapping.fa.set_block_style()
    old = mapping.ca.items.get(key)
    old_comment = old[2].value if old and len(old) > 2 and old[2] is not None else ""
    first, _, further_lines = old_comment.partition("\n")
    words = first.strip().lstrip("#").strip()
    mapping.ca.items.pop(key, None)
    mapping.yaml_add_eol_comment(f"{comment}; {words}" if words else comment, key)
    if further_lines:
        mapping.ca.items[key][2].value += "\n" + further_lines
