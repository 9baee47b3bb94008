"""Bounds of files that are imported: size, events, digits and depth are refused before they cost time or memory."""

import gzip
import json
import time

import pytest

from ipusim.app.profiles import source
from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.base.errors import FileError


def test_a_file_above_the_bound_is_refused_with_its_size_unread(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [')
        file.truncate((1 << 33) + 1)  # without taking room on the disk
    with pytest.raises(
        FileError, match=rf"^{path}: expected a file of at most 8 GiB unpacked, got one of 8 GiB or more"
    ):
        read_measured([path])


def test_one_event_too_many_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MOST_EVENTS", 1000)
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"ph": "X", "name": "x", "ts": 0, "dur": 1}] * 1001))
    with pytest.raises(FileError, match=rf"^{path}: expected at most 1,000 events, got more: ask for fewer steps$"):
        read_measured([path])


def test_progress_says_how_far_reading_is(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"ph": "X", "name": "Forward 0", "ts": 0, "dur": 1}] * 100_000))
    said = []
    stages_of(read_measured([path], progress=lambda text: said.append(text())))
    assert said[-1] == "100% of a.json, 99,999 events"  # the last one is taken when nothing comes behind it
    assert "40% of a.json, 19,784 events" in said


@pytest.mark.parametrize(
    "event",
    [
        '{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": %s}' % ("9" * 400),
        '{"ph": "X", "name": "PP:0F0", "ts": %s, "dur": 1}' % ("9" * 400),
        '{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": %s}' % ("9" * 100_000),
        '{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": 1, "args": %s}' % ("[" * 200_000),
        '{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": 1, "args": %s}' % ('{"a":' * 200_000),
    ],
    ids=["digits of a length", "digits of a start", "very many digits", "deep lists", "deep mappings"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_digits_and_depth_are_refused_at_once(tmp_path, event, packed):
    path = tmp_path / "a.json"
    content = f'{{"traceEvents": [{event}]}}'.encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    began = time.process_time()
    with pytest.raises(FileError) as no:
        stages_of(read_measured([path]))
    assert time.process_time() - began < 1
    assert len(str(no.value)) < 1000


def test_an_archive_without_events_is_left_after_its_first_64_mib(tmp_path, monkeypatch):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (1 << 27) + b"]}"))
    taken, read = [], source.Source.read
    monkeypatch.setattr(source.Source, "read", lambda self, size=-1: taken.append(size) or read(self, size))
    with pytest.raises(FileError, match=r"unpacks to 200 times its size or more, without an event in 64 MiB$"):
        read_measured([path])
    assert sum(taken) <= 66 << 20
