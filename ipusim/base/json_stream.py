"""Read JSON from untrusted sources in parts: memory is limited by the largest element."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from ipusim.base.errors import FileError
from ipusim.base.files import Readable

#: Bytes per read.
_CHUNK: Final = 1 << 20
#: Maximum number of characters of an element.
_MOST_ELEMENT_CHARACTERS: Final = 1 << 24
#: Characters after a number that may continue the number: the start of an exponent.
_EXPONENT_CHARACTERS: Final = 4
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BLANK: Final = ("", " ", "\t", "\r", "\n")
_COMMA: Final = re.compile(r"[ \t\r\n]*,[ \t\r\n]*(?=[^ \t\r\n])")
_DECODER: Final = json.JSONDecoder()


class JsonStream:
    """The elements of a JSON text, in order.

    Attributes:
        most_bytes: largest size of the text, in bytes.

    >>> import io
    >>> stream = JsonStream(io.BytesIO(b'{"rank": 1, "events": [2, 3]}'), "trace.json", 100)
    >>> {key: [*stream.items()] if stream.peek() == "[" else stream.value() for key in stream.members()}
    {'rank': 1, 'events': [2, 3]}
    """

    def __init__(self, file: Readable, name: str, most_bytes: int) -> None:
        """Read ``file``, named ``name`` in messages, up to ``most_bytes``."""
        self._file, self._name = file, name
        self._rest_bytes = self.most_bytes = most_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._text, self._position, self._line, self._is_at_end = "", 0, 1, False

    def peek(self) -> str:
        """Return the next character that is not white space; empty at the end.

        All methods raise FileError for text that is not JSON, and for a text or element that is too large."""
        while True:
            self._position = _SPACE.match(self._text, self._position).end()  # type: ignore[union-attr]
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read():
                return ""

    def members(self) -> Iterator[str]:
        """Yield the keys of the next mapping. The caller must read every value before the next key."""
        for _ in self._elements("{", "}"):
            key = self.value()
            if not isinstance(key, str):
                raise self._error(f"expected a key in quotes, got {str(key)[:20]}")
            self._take(":")
            yield key

    def items(self, may_be_open: bool = False) -> Iterator[Any]:
        """Yield the values of the next list. With ``may_be_open``, the file may end after any value."""
        for _ in self._elements("[", "]", may_be_open):
            yield self.value()

    def value(self) -> Any:
        """Return the next value, as a whole."""
        if self._text[self._position : self._position + 1] in _BLANK and not self.peek():
            raise self._error("expected a value, got the end of the file: it is cut off")
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._read():
                    continue
                self._position = min(error.pos, len(self._text))
                raise self._error(f"expected JSON, got other text: {error.msg}") from None
            except RecursionError:
                raise self._error("expected JSON of ordinary depth, got values nested too deep") from None
            except ValueError:
                raise self._error("expected JSON of ordinary numbers, got a number of thousands of digits") from None
            length = end - self._position
            if end + _EXPONENT_CHARACTERS > len(self._text) and self._read():
                continue
            self._position += length
            return value

    def _elements(self, opening: str, closing: str, may_be_open: bool = False) -> Iterator[None]:
        """Yield before every element between two brackets."""
        self._take(opening)
        if self.peek() == closing:
            self._position += 1
            return
        while True:
            if may_be_open and not self.peek():
                return
            yield
            # A single match takes the comma and the following white space, if both have been read.
            if comma := _COMMA.match(self._text, self._position):
                self._position = comma.end()
                continue
            if may_be_open and not self.peek():
                return
            self._take(f",{closing}")
            if self._text[self._position - 1] == closing:
                return

    def _take(self, characters: str) -> None:
        """Skip the next character, which must be in ``characters``."""
        character = self.peek()
        if not character or character not in characters:
            text = repr(character) if character else "the end of the file: it is cut off"
            raise self._error(f"expected {' or '.join(map(repr, characters))}, got {text}")
        self._position += 1

    def _read(self) -> bool:
        """Read the next part; return whether there was one."""
        if self._is_at_end:
            return False
        rest_length = len(self._text) - self._position
        if rest_length > _MOST_ELEMENT_CHARACTERS:
            raise self._error(f"expected elements of at most {_MOST_ELEMENT_CHARACTERS >> 20} MiB, got a larger one")
        data = self._file.read(max(_CHUNK, rest_length))
        self._rest_bytes -= len(data)
        if self._rest_bytes < 0:
            raise FileError(f"{self._name}: expected at most {self.most_bytes:,} bytes of contents, got more")
        self._is_at_end = not data
        self._line += self._text.count("\n", 0, self._position)
        self._text, self._position = self._text[self._position :] + self._decoder.decode(data, final=self._is_at_end), 0
        return bool(data)

    def _error(self, problem: str) -> FileError:
        line = self._line + self._text.count("\n", 0, self._position)
        return FileError(f"{self._name}:{line}: {problem}")
