"""Files of measured stages and of profilers, drawn and damaged: read as exact arithmetic has it, or one error."""

import csv
import gzip
import io
import math
import re
import statistics
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.app.profiles.written import StagesResult
from ipusim.base.errors import FileError, OptionError
from ipusim.hardware.generations import GC200
from ipusim.runs.request.profile import read_profile, read_stages
from tests.drawn_profiles import drawn, first_of_forms, write
from tests.effort import draws_everything, share
from tests.scenarios import SCENARIOS

CLOCK_HZ = 1_330_000_000
SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}
#: Columns by the key that they are of, in the spellings that a file may have.
TITLES = {
    "stage": ("stage", "Stage"),
    "forward": ("forward", "FORWARD "),
    "backward": ("backward", " Backward"),
    "update": ("update", "weight update", "Weight_Update", "weight-update"),
    "backward_input": ("backward_input", "backward input"),
    "backward_weights": ("backward_weights", "Backward Weights"),
    "source": ("source", "Source"),
}
#: The same of bytes, in stages without a model.
SIZES = {"output_bytes": ("bytes", "Output Bytes", "output_bytes"), "stash_bytes": ("stash bytes",)}
BYTES = {"B": 1, "kB": 1000, "KiB": 1024, "MB": 10**6}
SAFE = settings(max_examples=share(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def profiles(draw):
    """Return the text of a file, and the cycles that each row gives each key, by arithmetic of its own."""
    keys = draw(
        st.permutations(
            ["stage", "forward", *draw(st.sets(st.sampled_from(sorted(set(TITLES) - {"stage", "forward"}))))]
        )
    )
    units = {key: draw(st.sampled_from(["", "", "cycles", *SECONDS])) for key in keys if key not in ("stage", "source")}
    header = [draw(st.sampled_from(TITLES[key])) + (f" [{units[key]}]" if units.get(key) else "") for key in keys]
    lines, expected = [header], []
    for number in range(draw(st.integers(1, 5))):
        row, cycles = [], {}
        for key in keys:
            if key in ("stage", "source"):
                row.append(draw(st.sampled_from([str(number), f"layer {number}, of two"])) if key == "stage" else "me")
                continue
            if key != "forward" and draw(st.integers(0, 4)) == 0:
                row.append("")
                continue
            unit = units[key] or draw(st.sampled_from(["", " cycles", " ms", "us"]))
            thousandths = draw(st.integers(0, 10**6)) * (1 if unit.strip() in SECONDS else 1000)
            text = f"{thousandths // 1000}.{thousandths % 1000:03}" if thousandths % 1000 else f"{thousandths // 1000}"
            row.append(text + ("" if units[key] else unit))
            factor = SECONDS.get(unit.strip())
            cycles[key] = math.ceil(Fraction(thousandths, 1000) * (factor * CLOCK_HZ if factor else 1))
        lines.append(row)
        expected.append(cycles)
        if draw(st.integers(0, 4)) == 0:
            lines.append(draw(st.sampled_from([[], [" ", ""]])))
    text = io.StringIO()
    csv.writer(text, lineterminator=draw(st.sampled_from(["\n", "\r\n"]))).writerows(lines)
    return text.getvalue(), expected


@SAFE
@given(profiles(), st.data())
def test_a_profile_is_read_as_exact_arithmetic_has_it_or_refused_line_by_line_once_damaged(tmp_path, drawn, data):
    text, expected = drawn
    path = tmp_path / "p.csv"
    path.write_bytes(text.encode())
    if any(map(has_one_half, expected)):
        with pytest.raises(FileError):
            read_profile(path, CLOCK_HZ)
    elif all(cycles <= 10**11 for row in expected for cycles in row.values()):
        check_read(path, expected)
    for _ in range(6):
        path.unlink()  # in place of truncating it, which takes the system longer
        path.write_bytes(damaged(text, data))
        check_read_or_refused(path)


def has_one_half(row):
    """Whether a row has one half of a backward pass without the whole, or longer than that."""
    halves = [cycles for key, cycles in row.items() if key.startswith("backward_")]
    return len(halves) == 1 and halves[0] > row.get("backward", -1)


def check_read(path, expected):
    """Hold that a file is read as exact arithmetic has it."""
    found = read_profile(path, CLOCK_HZ)
    assert [row.cycles.model_dump(exclude_unset=True, mode="python").keys() for row in found] == [
        row.keys() for row in expected
    ]
    assert [{key: int(getattr(row.cycles, key)) for key in row.cycles.model_fields_set} for row in found] == expected


def damaged(text, data):
    """Return the bytes of a file of which a few places are others."""
    content = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b",", b'"', b"\n"])
        )
        content = content or bytearray(b"\n")
    return content


def check_read_or_refused(path):
    """Hold that a file is read, or refused line by line."""
    try:
        found = read_profile(path, CLOCK_HZ, "p.csv")
    except FileError as error:
        for line in str(error).splitlines():
            assert re.match(r"p\.csv(:\d+)?: |and \d+ more$", line), line
            assert "Input should" not in line
    else:
        assert all(0 <= getattr(row.cycles, key) <= 10**11 for row in found for key in row.cycles.model_fields_set)


@st.composite
def many_rows(draw):
    """Return the text of a file with several rows of each stage, and of each stage all that its rows have."""
    units = {"forward": draw(st.sampled_from(sorted(SECONDS))), "output_bytes": draw(st.sampled_from(sorted(BYTES)))}
    titles = [f"forward{draw(st.sampled_from(['_{}', ' [{}]', ' ({})'])).format(units['forward'])}"]
    titles += [f"{draw(st.sampled_from(SIZES['output_bytes']))} [{units['output_bytes']}]"]
    stages = draw(st.integers(1, 4))
    rows = [*range(stages), *draw(st.lists(st.integers(0, stages - 1), max_size=8))]
    times = [Fraction(draw(st.integers(0, 10**4)), 1000) for _ in rows]
    sizes = [draw(st.integers(0, 9)) for _ in rows]
    lines = [f"{row},{float(time)},{size}" for row, time, size in zip(rows, times, sizes, strict=True)]
    measured = {
        stage: (
            [time * SECONDS[units["forward"]] for row, time in zip(rows, times, strict=True) if row == stage],
            [size * BYTES[units["output_bytes"]] for row, size in zip(rows, sizes, strict=True) if row == stage],
        )
        for stage in range(stages)
    }
    return "\n".join([",".join(["stage", *titles]), *lines]) + "\n", measured


@SAFE
@given(many_rows())
def test_of_several_rows_of_a_stage_the_medians_count(tmp_path, drawn):
    text, measured = drawn
    path = tmp_path / "p.csv"
    path.write_text(text)
    found = read_stages(path, CLOCK_HZ)
    assert [stage.name for stage in found] == [f"stage{stage}" for stage in measured]
    for stage, (times, sizes) in zip(found, measured.values(), strict=True):
        assert int(stage.forward) == math.ceil(statistics.median(times) * CLOCK_HZ)
        assert stage.output_bytes == math.ceil(statistics.median(map(Fraction, sizes)))
    assert [row.cycles.forward for row in read_profile(strip_sizes(path), CLOCK_HZ)] == [s.forward for s in found]


def strip_sizes(path):
    """Write a file without its last column, as a profile beside a model has it."""
    path.write_text("".join(line.rpartition(",")[0] + "\n" for line in path.read_text().splitlines()))
    return path


@SAFE
@given(st.binary(max_size=80) | st.text('stage,forward[us] \n\t"0123.e-', max_size=80).map(str.encode))
def test_any_bytes_are_a_profile_or_one_error(tmp_path, content):
    path = tmp_path / "p.csv"
    path.write_bytes(content)
    with pytest.raises(FileError):
        read_profile(path, CLOCK_HZ)


DRAWS = 5000 if draws_everything() else 500


def outcome(seed: int) -> str:
    """Return how the run of a seed is read: right, refused or wrong, with its form and the message."""
    found = drawn(seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            stages = stages_of(read_measured(write(found, Path(folder)), found.names), found.stages)
        except (FileError, OptionError) as error:
            # Replicas in one file without names of processes may be in order or not.
            reasons = [found.reason] if found.reason else [] if found.right else ["the order of ranks was assumed"]
            right = next((reason for reason in reasons if reason in str(error)), None)
            return f"refused: {right}" if right else f"wrong: {seed}, {found.form}: refused: {error}"
    medians = [tuple(figure.median for figure in figures.values()) for figures in stages.stages.values()]
    if not found.right and not found.reason:
        return "said: " + stages.sources[0][4].partition(";")[0]
    if found.reason or medians != found.right or stages.count != found.count:
        return f"wrong: {seed}, {found.form}: {medians}, {stages.count}; {found.right}, {found.count}; {found.reason}"
    return "right"


def test_none_is_wrong_in_silence_and_most_are_read_right():
    """Refused are contradictions, missing ranks and facts, and forms without a reader alone."""
    outcomes = [outcome(seed) for seed in range(DRAWS)]
    assert [each for each in outcomes if each.startswith("wrong")] == []
    counted = Counter(outcomes)
    assert counted["right"] >= 0.8 * DRAWS, counted


FILES = {
    "trace": (SCENARIOS / "measured_trace.json").read_bytes(),
    "packed": gzip.compress((SCENARIOS / "measured_trace.json").read_bytes(), mtime=0),
    "log": (SCENARIOS / "measured_timers.log").read_bytes(),
} | {form: next(iter(run.files.values())) for form, run in first_of_forms().items()}


@pytest.mark.parametrize("kind", FILES)
@settings(SAFE, max_examples=share(150))
@given(data=st.data())
def test_a_damaged_file_is_stages_that_run_or_one_error(tmp_path, kind, data):
    content = bytearray(FILES[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        end = at + data.draw(st.integers(0, 40)) if data.draw(st.booleans()) else len(content)
        content[at:end] = data.draw(
            st.binary(max_size=4)
            | st.sampled_from([b'"', b"{", b"}", b"]", b",", b"-1", b"\n", b"9" * 401, b"1e18", b"75187969", b"0" * 9])
        )
        content = content or bytearray(b"{")
    path = tmp_path / "file"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    try:
        stages = stages_of(read_measured([path]))
    except (FileError, OptionError) as error:
        told = str(error)
    else:
        table = tmp_path / "t.csv"
        table.unlink(missing_ok=True)
        table.write_bytes(StagesResult(stages).text(".csv"))
        assert len(read_stages(table, GC200.clock_hz)) == len(stages.stages)
        return
    assert told.startswith(f"{path}:"), told
    assert len(told.splitlines()) == 1
