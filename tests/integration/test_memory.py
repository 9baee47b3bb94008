"""Files from anywhere take as much memory as they state, not as they would unpack to.

A run takes no more memory than limits count with.
"""

import gzip
import io
import os
import struct
import subprocess
import sys
import textwrap
import tracemalloc

import numpy as np
import pytest

from ipusim.base.errors import ModelError, TimelineError
from ipusim.model.data.dataset_files import idx, npz, read_idx
from ipusim.runs.assemble.limits import PASS_BYTES, SPAN_BYTES
from ipusim.timeline.timeline import Span, Timeline
from tests.effort import slowest
from tests.forged_files import DATA, archive, bomb, header, idx_bytes, patched
from tests.scenarios import SCENARIOS


def peak_bytes(read):
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BIG = 1 << 26


def zipped(start):
    """Return ``start`` and zeros, in all 64 MiB, packed a thousand times smaller."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9) as file:
        file.write(start)
        for _ in range(BIG >> 20):
            file.write(bytes(1 << 20))
    return buffer.getvalue()


@slowest
def test_memory_follows_what_a_file_states_not_what_it_unpacks_to(tmp_path):
    files = {
        "zeros.gz": zipped(b""),
        "pixels.gz": zipped(idx_bytes((2, 2))),
        "rows.npz": archive(x=header((1000,)) + bytes(BIG), y=DATA),
        "sparse": idx_bytes((2, 2)),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    os.truncate(tmp_path / "sparse", BIG)

    def refused(read, *paths):
        with pytest.raises(ModelError):
            read(*paths)

    for name in files:
        for read in (read_idx, npz):
            assert peak_bytes(lambda read=read, name=name: refused(read, tmp_path / name)) < 8e6, (read, name)


def test_a_timeline_that_unpacks_to_gigabytes_is_refused_in_little_memory(tmp_path):
    content = bomb(2700 << 20, "info", *Span._fields)
    assert len(content) < 2700 << 10
    (tmp_path / "timeline.npz").write_bytes(content)

    def load():
        with pytest.raises(TimelineError, match=r"expected arrays of at most 465\.8 MiB, got 2\.637 GiB"):
            Timeline.load(tmp_path / "timeline.npz")

    assert peak_bytes(load) < 1e6


@pytest.mark.parametrize("kind", ["idx", "gzip", "npz"])
def test_memory_of_a_dataset_is_a_few_times_what_its_header_states(tmp_path, kind):
    images = np.random.default_rng(0).integers(0, 256, (4096, 32, 32), np.uint8)
    labels = np.zeros(4096, np.uint8)
    np.savez(tmp_path / "d.npz", x=images, y=labels)
    for name, array in (("x", images), ("y", labels)):
        content = idx_bytes(array.shape, array.tobytes())
        (tmp_path / name).write_bytes(gzip.compress(content, 1) if kind == "gzip" else content)
    read = (lambda: npz(tmp_path / "d.npz")) if kind == "npz" else (lambda: idx(tmp_path / "x", tmp_path / "y"))
    as_floats = 4 * images.nbytes  # float32
    assert peak_bytes(read) < as_floats + 2.5 * images.nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_lie_of_two_gigabytes_fits_into_little_memory(tmp_path):
    """The archive and the array agree on bytes that are not there."""
    size = 2**31 - 1

    def lie(data, at):
        data[at : at + 4] = struct.pack("<I", size + len(header((size,), "|u1")))

    content = archive(x=header((size,), "|u1") + bytes(100))
    (tmp_path / "d.npz").write_bytes(patched(content, 22, 24, lie))
    code = """
        import resource, sys
        from pathlib import Path
        from ipusim.base.errors import ModelError
        from ipusim.model.data.dataset_files import npz
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
        try:
            npz(Path(sys.argv[1]), "x", "x")
        except ModelError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), tmp_path / "d.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"{tmp_path}/d.npz: not a NumPy archive of plain arrays: 'x' "), done.stderr
    assert "MemoryError" not in done.stdout


FOUR = SCENARIOS / "schedules_four_ipus.yaml"
MEASURE = """
import resource, sys
from pathlib import Path
from ipusim.app.scenario import load_job
from ipusim.app.run_folder.report import picture_window, run_files
from ipusim.runs.execute import execute
for count in (400, 2_000):
    job = load_job(sys.argv[1], [*sys.argv[2:], f"pipeline.gradient_accumulation_count={count}"])
    result = execute(job, jump=False)
    run_files(result, picture_window(result.timeline), Path())
    print(len(result.timeline.start), len(job.whole.plan.table), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    del result
"""


@slowest
def test_a_run_takes_no_more_memory_for_a_span_than_the_bound_counts():
    """The growth of a whole run's peak, all files included, from one size to five times that."""
    changes = ("system.name=m2000", "pipeline.schedule=sequential", "pipeline.stages.0.output_bytes=4 KiB")
    words = [sys.executable, "-c", MEASURE, FOUR, *changes]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    spans, passes, kibibytes = (large - small for small, large in zip(*found, strict=True))
    assert spans > 4 * passes > 45_000
    assert kibibytes * 1024 <= spans * SPAN_BYTES + passes * PASS_BYTES
