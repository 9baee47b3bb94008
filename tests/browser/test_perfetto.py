"""A trace of ours in a real Perfetto, as `ipusim show --perfetto` serves it: every slice and number is there."""

import gzip

import pytest

from ipusim.app.run_folder.report import trace_file
from ipusim.app.run_folder.stored import TRACE_FILE
from ipusim.app.run_folder.view import local_perfetto, serve
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from tests.browser.conftest import _without
from tests.effort import rarest
from tests.scenarios import SCENARIOS

#: Answers one SQL query as rows.
QUERY = """async ([query, names]) => {
  const found = [], result = await window.app.trace.engine.query(query);
  const plain = (value) => typeof value === "bigint" ? Number(value) : value;
  for (const row = result.iter({}); row.valid(); row.next()) found.push(names.map((name) => plain(row.get(name))));
  return found;
}"""


@pytest.fixture
def perfetto():
    return local_perfetto() or _without("no Perfetto is installed: pip install -e '.[view]'")


@rarest
def test_perfetto_drops_no_slice_and_shows_ipus_by_their_logical_number(browser, perfetto, read_perfetto, tmp_path):
    result = execute(load_job(SCENARIOS / "zero_bubble.yaml", ["numerics=off", "steps=1", "pipeline.repeat_count=2"]))
    content = trace_file(result)
    (tmp_path / TRACE_FILE).write_bytes(content)
    expected = read_perfetto(gzip.decompress(content))
    page = browser.new_page()
    with serve(tmp_path / TRACE_FILE, perfetto) as address:
        page.goto(address)
        page.wait_for_function("window.app?.trace?.engine", timeout=60_000)

        def query(text, *names):
            return page.evaluate(QUERY, [text, names])

        wrong = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
        assert query(wrong, "name", "value") == []
        page.wait_for_function("window.app.trace.workspace.flatTracks.length > 1")
        shown = page.evaluate("window.app.trace.workspace.flatTracks.map((track) => track.name || track.title)")
        assert result.timeline.info.ipus == (0, 1, 3, 2)
        assert [name for name in shown if name.startswith("IPU ")] == [f"IPU {ipu}, stage {ipu}" for ipu in range(4)]
        found = query("select name, dur from slice", "name", "dur")
        assert sorted(map(tuple, found)) == sorted((each.name, each.end_ns - each.start_ns) for each in expected.slices)
        flows = sum(len(each.arriving) for each in expected.slices)
        assert query("select count(*) as n from flow", "n") == [[flows]]
        numbers = sum(map(len, expected.counters.values()))
        assert query("select count(*) as n from counter", "n") == [[numbers]]
    page.close()
