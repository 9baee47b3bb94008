"""Drawn runs as profilers write them: read right, or refused for a reason; damaged, stages or one error."""

import gzip
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.app.profiles.written import StagesResult
from ipusim.base.errors import FileError, OptionError
from ipusim.hardware.generations import GC200
from ipusim.runs.request.profile import read_stages
from tests.drawn_profiles import drawn, first_of_forms, write
from tests.effort import draws_everything, share
from tests.scenarios import SCENARIOS

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
SAFE = settings(max_examples=share(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", FILES)
@SAFE
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
