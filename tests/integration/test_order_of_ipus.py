"""One order of IPUs everywhere, that of their logical numbers: pictures, pages, trace files, tables, exports, frames.

In the run that is looked at, logical IPUs, physical ones and stages are in different orders.
"""

import csv
import gzip
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import ipusim
from ipusim.app.cli.tables import holder_table, memory_table
from ipusim.app.explain.explanation import explain
from ipusim.app.page.page import report_page
from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.idle_causes import idle_chart
from ipusim.app.render.tables import ipu_table
from ipusim.app.render.trace_content import TraceContent
from ipusim.app.render.trace_tracks import physical_ipus
from ipusim.app.run_folder.export import export_files
from ipusim.app.run_folder.report import trace_file
from tests.drawn_pictures import drawn_texts
from tests.effort import sampled

PHYSICAL = (0, 2, 3, 1, 4, 6, 7, 5)
STAGES = [
    {"name": f"s{n}", "forward": 4000 + 500 * n, "backward": 8000, "output_bytes": 4096, "gradient_bytes": 4096}
    | {"parameter_bytes": 2**20 * (1 + n % 3), "stash_bytes": 2**16}
    for n in range(4)
]
ASKED = {
    "name": "shuffled",
    "system": {"name": "pod16", "auto_select_ipus": 8, "selection_order": "HOOF"},
    "pipeline": {"stages": STAGES, "gradient_accumulation_count": 8, "device_mapping": [2, 0, 3, 1]},
}


@pytest.fixture(scope="module")
def run():
    found = ipusim.run(ASKED)
    assert found.timeline.info.ipus == PHYSICAL
    return found


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    """The run in a folder, and what its page says of it."""
    where = tmp_path_factory.mktemp("order") / "run"
    run.save(where)
    page = report_page([where]).decode()
    said = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    return SimpleNamespace(path=where, page=json.loads(said)["runs"][0])


def named(texts):
    """Return the numbers of the IPUs that texts name, in their order, each once."""
    found = [re.match(r"(?:replica \d+[:,] )?IPU (\d+)(?!.*: )", text) for text in texts]
    return list(dict.fromkeys(int(each[1]) for each in found if each))


def from_the_top(figure):
    rows = sorted((-box.y0, text) for text, box in drawn_texts(figure) if re.match(r"(replica \d+: )?IPU \d+$", text))
    return named(text for _, text in rows)


def column(table):
    return [int(row[0]) for row in table.rows]


def in_csv(run, folder, name):
    rows = csv.DictReader(io.StringIO(export_files(folder.path, Path("spans.csv"))[name].decode()))
    return list(dict.fromkeys(int(row["ipu"]) for row in rows))


#: What lists IPUs, by name: the logical numbers from the top down.
LISTED = {
    "trace.png": lambda run, _: from_the_top(run.figure()),
    "memory.png": lambda run, _: from_the_top(run.memory_figure()),
    "idle_causes.png": lambda run, _: from_the_top(
        idle_chart(run.timeline, explain(run.timeline, "not asked for").ipu_time)
    ),
    "comparison.png": lambda run, _: from_the_top(comparison([TracedRun(run.timeline)])),
    "page, trace": lambda _, folder: named(track["label"] for track in folder.page["tracks"]),
    "page, memory": lambda _, folder: named(row["label"] for row in folder.page["memory"]["rows"]),
    "page, idle": lambda _, folder: named(row["label"] for row in folder.page["bars"]["rows"]),
    "table of IPUs": lambda run, _: column(ipu_table(run.times)),
    "table of memory": lambda run, _: column(memory_table(run.result.memory, run.timeline)),
    "table of holders": lambda run, _: column(holder_table(run.result.memory)),
    "table of idle time": lambda run, _: column(next(explain(run.timeline, "not asked for").tables())),
    "explanation.json": lambda run, _: [each["ipu"] for each in explain(run.timeline, "not asked for").data()["ipus"]],
    "summary.json, use": lambda run, _: [each["ipu"] for each in run.summary.to_dict()["pipeline_use"]],
    "summary.json, memory": lambda run, _: [each["ipu"] for each in run.summary.to_dict()["memory"]["ipus"]],
    "ipus.csv": lambda run, folder: in_csv(run, folder, "ipus.csv"),
    "memory.csv": lambda run, folder: in_csv(run, folder, "memory.csv"),
    "frame of IPUs": lambda run, _: run.ipus()["ipu"].tolist(),
    "frame of memory": lambda run, _: run.memory()["ipu"].tolist(),
    "frame of memory over time": lambda run, _: run.memory_over_time()["ipu"].unique().tolist(),
}


@sampled(2)
@pytest.mark.parametrize("name", LISTED)
def test_ipus_are_listed_by_their_logical_number(run, folder, name):
    found = LISTED[name](run, folder)
    assert found in ([*range(8)], [*range(4)])  # of all replicas, or of one that stands for all


def test_trace_files_have_tracks_in_that_order_too(run, read_perfetto):
    found = read_perfetto(gzip.decompress(trace_file(run.result)))
    names = [each.name for each in sorted(found.descriptors.values(), key=lambda each: each.sibling_order_rank)]
    assert named(names) == [*range(8)]
    assert not [name for name in names if "(on" in name]


def test_a_row_names_the_stage_of_its_ipu(run, folder):
    texts = sorted((-box.y0, text) for text, box in drawn_texts(run.figure()) if re.fullmatch(r"s\d", text))
    assert [text for _, text in texts][:4] == ["s1", "s3", "s0", "s2"]
    details = [track["detail"] for track in folder.page["tracks"] if track["label"].startswith("IPU")]
    assert details[:4] == [f"replica 0, stage {stage} s{stage}" for stage in (1, 3, 0, 2)]


def test_physical_ipus_are_told_where_links_are_and_nowhere_on_a_machine_without(run, folder):
    assert physical_ipus(run.timeline) == PHYSICAL
    assert folder.page["physical"] == [*PHYSICAL]
    free = ipusim.run({**ASKED, "system": {"name": "free", "auto_select_ipus": 8, "selection_order": "HOOF"}})
    assert free.timeline.info.ipus == PHYSICAL
    assert physical_ipus(free.timeline) == ()
    tracks = TraceContent(free.timeline).tracks.entries
    assert not any("IPU-Links" in track.name or track.description for track in tracks)
