"""Files of a run folder: memory over time, written, read back and refused, and columns of exported spans."""

import io

import numpy as np
import pytest

from ipusim.analysis.memory import memory_curves
from ipusim.app.run_folder.columns import span_columns
from ipusim.app.run_folder.memory_file import memory_file, read_memory
from ipusim.app.scenario import load_job
from ipusim.base.errors import FileError
from ipusim.machine.simulate import simulate
from ipusim.runs.execute import execute
from ipusim.timeline.host_track import HostTrack
from tests.scenarios import SCENARIOS


@pytest.fixture(scope="module")
def curves():
    run = execute(load_job(SCENARIOS / "memory_by_schedule.yaml"))
    return memory_curves(run.timeline, run.memory.footprint)


def test_curves_are_read_back_as_they_were(curves, tmp_path):
    path = tmp_path / "memory.npz"
    path.write_bytes(memory_file(curves))
    found = read_memory(tmp_path, 4)
    assert [(curve.ipu, curve.resident_bytes) for curve in found] == [(c.ipu, c.resident_bytes) for c in curves]
    for one, other in zip(found, curves, strict=True):
        np.testing.assert_array_equal(one.time, other.time)
        np.testing.assert_array_equal(one.allocated_bytes, other.allocated_bytes)
        np.testing.assert_array_equal(one.fifo_bytes, other.fifo_bytes)
    assert memory_file(found) == memory_file(curves)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"live_bytes": np.zeros(3, np.int64)}, "columns of different lengths"),
        ({"time": np.array([0.5])}, "columns without whole numbers from 0 up"),
        ({"resident_bytes": np.array([-1], np.int64)}, "columns without whole numbers from 0 up"),
        ({"ipu": np.array([4], np.int64)}, "IPUs beyond the 4 of the run, or without memory"),
        ({"time": np.array([3, 2], np.int64)}, "times that do not rise from 0"),
        ({"blocks": np.array([[1, 0, 1, 2, 5, 1, 1, 0]])}, "blocks without a curve"),
        ({"blocks": np.array([[0, 0, 3, 2, 5, 1, 1, 0]])}, "a block of rows 0 to 3, 2 times"),
        ({"blocks": np.array([[0, 0, 2, 2, 1, 1, 1, 0]])}, "copies of the block of rows 0 to 2 that overlap"),
        ({"blocks": np.array([[0, 0, 1, 2, 5, 1, 1, 0]])}, "a block from row 0 on that does not end before row 1"),
        ({"time": None}, "no array 'time'; it holds ipu, resident_bytes, entries, live_bytes, fifo_bytes"),
    ],
)
def test_another_file_is_refused_by_its_name(change, reason, tmp_path):
    two = np.array([0, 2], np.int64)
    one = np.array([1], np.int64)
    columns = {"ipu": one, "resident_bytes": one, "entries": 2 * one, "time": two, "live_bytes": two, "fifo_bytes": two}
    file = io.BytesIO()
    np.savez(file, **{name: array for name, array in (columns | change).items() if array is not None})
    path = tmp_path / "memory.npz"
    path.write_bytes(file.getvalue())
    with pytest.raises(FileError) as refused:
        read_memory(tmp_path, 4)
    said = f"{path}: expected the memory of IPUs in the format of a run, got another format: {reason}"
    assert str(refused.value) == said


def test_a_folder_without_the_file_holds_no_curves(tmp_path):
    assert read_memory(tmp_path, 4) == ()


RUNS = {
    "variables_on_host": ("system.auto_select_ipus=4", "system.host.count=2"),
    "host_embedding": ("system.auto_select_ipus=4",),
}


@pytest.mark.parametrize("scenario", RUNS)
def test_each_track_of_the_host_has_its_name(scenario):
    """Those of a replica say which; the network and the variables are the host's, whatever the replicas."""
    job = load_job(SCENARIOS / f"{scenario}.yaml", ("pipeline.gradient_accumulation_count=4", *RUNS[scenario]))
    columns = span_columns(simulate(job.plan, job.program, job.system, costs=job.costs))
    found = {text for text in columns["track"].names if text.startswith("host ")}
    own = {f"host {track.word} of replica {replica}" for track in HostTrack for replica in (0, 1)}
    assert found <= own | {"host network", "host variables"}
    assert {"variables_on_host": "host variables", "host_embedding": "host tables of replica 1"}[scenario] in found
