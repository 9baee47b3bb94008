"""Damaged traces and logs of profilers: stages, or one error of ours that names the file."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.app.profiles.written import StagesResult
from ipusim.base.errors import FileError, OptionError
from ipusim.hardware.generations import GC200
from ipusim.runs.request.profile import read_stages
from tests.drawn_profiles import first_of_forms
from tests.effort import share
from tests.scenarios import SCENARIOS

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
