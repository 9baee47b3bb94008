"""JSON read part by part is what the library reads as a whole, or one error with the file and its line."""

import io
import json
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.base.errors import FileError
from ipusim.base.json_stream import JsonStream
from tests.effort import share, slowest
from tests.random_runs import any_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | any_text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
SAFE = settings(max_examples=share(300), deadline=None)


class Dribble(io.BytesIO):
    """A file of which each read gives a few bytes at most."""

    def __init__(self, content, size):
        super().__init__(content)
        self.size = size

    def read(self, size=-1):
        return super().read(self.size)


def read(content, size, most=10**6):
    stream = JsonStream(Dribble(content, size), "t.json", most)
    if stream.peek() == "[":
        return [*stream.items()]
    return {key: [*stream.items()] if stream.peek() == "[" else stream.value() for key in stream.members()}


@SAFE
@given(
    st.lists(VALUES, max_size=5) | st.dictionaries(any_text(max_size=3), VALUES, max_size=5),
    st.integers(1, 40),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
)
def test_it_is_what_the_library_reads_as_a_whole(value, size, indent, ascii_only):
    content = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    text = content.decode("utf-8", "replace")
    assert read(content, size) == json.loads(text)


@SAFE
@given(st.dictionaries(st.text("ab", max_size=3), VALUES, min_size=1, max_size=4), st.data())
def test_a_damaged_text_is_read_or_one_error_with_its_line(value, data):
    content = bytearray(json.dumps(value, indent=1).encode())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    told = refusal(bytes(content), data.draw(st.integers(1, 40)))
    line = re.match(r"t\.json:(\d+): expected |$", told)
    assert line, told
    assert 1 <= int(line[1] or 1) <= content.count(b"\n") + 1


def refusal(content, size):
    """Return the message of what is wrong with a text; nothing where nothing is."""
    try:
        read(content, size)
    except FileError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.json:1: expected '{', got the end of the file: it is cut off"),
        (b'\n{"a":\n [1, 2', "t.json:3: expected ',' or ']', got the end of the file: it is cut off"),
        (b'{"a": tru', "t.json:1: expected JSON, got other text: Expecting value"),
        (b'{"a": "b', "t.json:1: expected JSON, got other text: Unterminated string starting at"),
        (b'{"a": 1\n "b": 2}', "t.json:2: expected ',' or '}', got '\"'"),
        (b"{1: 2}", "t.json:1: expected a key in quotes, got 1"),
        (b'{"a": ' + b"[" * 100_000, "t.json:1: expected JSON of ordinary depth, got values nested too deep"),
        (
            b'{"a": {"b": ' + b"9" * 5000 + b"}}",
            "t.json:1: expected JSON of ordinary numbers, got a number of thousands of ",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(content, message):
    assert refusal(content, 10**5).startswith(message)


@slowest
def test_memory_follows_the_largest_element_and_a_file_has_an_end():
    many = b"[" + b",".join([b'{"name": "x"}'] * 150_000) + b"]"
    tracemalloc.start()
    stream = JsonStream(io.BytesIO(many), "t.json", 10**8)
    assert sum(1 for _ in stream.items()) == 150_000
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()
    stream = JsonStream(io.BytesIO(many), "t.json", 10**6)
    with pytest.raises(FileError, match=r"^t.json: expected at most 1,000,000 bytes of contents, got more"):
        sum(1 for _ in stream.items())
