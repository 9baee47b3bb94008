"""What a new kind of span and a new holder of memory cost: a row each, and whoever emits them; all else follows."""

import gzip
import json

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from ipusim.timeline.kinds import SpanKind
from tests.effort import runs_slowest, slowest
from tests.scenarios import ROOT

SCENARIO = ROOT / "scenarios" / "memory_by_schedule.yaml"
#: A colour that nothing else has.
FACE = "#a8ff04"

KIND = f"""    DRAIN = Row(
        {max(SpanKind) + 1},
        doc="An IPU pours out.",
        name="drain to host",
        category="drain",
        look=Look("drained", "{FACE}", "#000000"),
        use=Use("drain", "draining", idle=Idle.HOST),
    )
"""
HOLDER = f"""    SPARE = "spare room", "spare", 3, Look("spare room", "{FACE}", "#000000")
"""

#: A run with all its files.
RUN = """
import sys
from ipusim.app.cli import app
sets = "outfeed.element_bytes=20MB", "pipeline.gradient_accumulation_count=8"
words = [word for each in sets for word in ("--set", each)]
app(["run", sys.argv[1], *words, "--verbose", "--out", "out"], standalone_mode=False)
"""
#: Leaves the picture out that only one of the slowest tests looks at.
WITHOUT_TRACE = """
from matplotlib.figure import Figure
from ipusim.app.run_folder import pictures
pictures.execution_trace = lambda *_, **_options: Figure()
"""


def insert(package, folder, anchor, text, after=""):
    """Put ``text`` before the one place under ``folder`` of the package where ``anchor`` stands; return its file."""
    (path,) = (path for path in (ROOT / "ipusim" / folder).rglob("*.py") if anchor in path.read_text("utf-8"))
    file = str(path.relative_to(ROOT / "ipusim"))
    package.put(file, anchor, text + (after or anchor))
    return file


BESIDE = {}


def change(package):
    touched = {
        insert(package, "timeline", "    LINK = _COPY(\n", KIND),
        insert(package, "machine", "(SpanKind.INFEED, SpanKind.OUTFEED)", "", "(SpanKind.INFEED, SpanKind.DRAIN)"),
        insert(package, "pipeline", '    LIVE = "live tensors"', HOLDER),
        insert(package, "pipeline", "    yield Holder.PARAMETERS", "    yield Holder.SPARE, 80_000_000\n"),
    }
    assert len(touched) == 4


@pytest.fixture(scope="module")
def results(changed):
    """The folder of a run of the package with the rows and their emitters, and what it printed."""
    printed = changed(("" if runs_slowest() else WITHOUT_TRACE) + RUN, SCENARIO)
    return changed.place / "out", printed


def shows(path):
    pixels = np.round(imread(path)[..., :3] * 255)
    return bool((pixels == np.round(255 * np.array(to_rgb(FACE)))).all(axis=-1).any())


@slowest
def test_a_kind_in_one_row_shows_in_the_picture_and_its_legend(results):
    out, _ = results
    assert shows(out / "trace.png")
    assert ">drained<" in (out / "trace.svg").read_text("utf-8")


def test_a_kind_in_one_row_shows_in_the_trace_file(results, read_perfetto):
    out, _ = results
    trace = read_perfetto(gzip.decompress((out / "trace.pftrace.gz").read_bytes()))
    assert {each.category for each in trace.slices if each.name == "drain to host"} == {"drain"}


def test_a_kind_in_one_row_shows_in_the_table_and_the_summary(results):
    out, printed = results
    assert "draining" in printed
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert sum(summary["waterfall"]["cycles"].values()) == summary["throughput"]["run_cycles"]
    drained = [use["drain_cycles"] for use in summary["pipeline_use"]]
    assert drained[-1] > 0
    assert drained[:-1] == [0] * (len(drained) - 1)
    assert summary["pipeline_use"][-1]["host_transfer_cycles"] == 0


def test_a_holder_in_one_row_shows_in_the_chart_the_table_and_the_summary(results):
    out, printed = results
    assert shows(out / "memory.png")
    assert " spare " in printed
    memory = json.loads((out / "summary.json").read_text("utf-8"))["memory"]
    for ipu in memory["ipus"]:
        assert list(ipu["holders"])[-2:] == ["spare_room", "live_tensors"]
        assert ipu["holders"]["spare_room"] == 80_000_000
        assert ipu["resident_bytes"] == sum(ipu["holders"].values()) - ipu["holders"]["live_tensors"]
