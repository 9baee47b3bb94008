"""A trace of ours in a real Perfetto, as `ipusim view` serves it: every slice and number is there."""

from __future__ import annotations

import gzip

import pytest

from ipusim.runs.execute import execute
from ipusim.scenario import load_job
from ipusim.study.report import trace_file
from ipusim.study.view import local_perfetto, serve
from tests.browser.conftest import _without
from tests.places import SCENARIOS

#: Answers one SQL query as rows.
QUERY = """async ([query, names]) => {
  const found = [], result = await window.app.trace.engine.query(query);
  const columns = Object.fromEntries(names.map((name) => [name, null]));
  for (const row = result.iter({}); row.valid(); row.next()) found.push(names.map((name) => row.get(name)).map((value) =>
    typeof value === "bigint" ? Number(value) : value));
  return found;
}"""


@pytest.fixture
def perfetto():
    return local_perfetto() or _without("no Perfetto is installed: pip install -e '.[view]'")


@pytest.mark.parametrize("trace_format", ["perfetto", "chrome"])
def test_perfetto_drops_no_slice(browser, perfetto, read_perfetto, tmp_path, trace_format):
    scenario = "zero_bubble" if trace_format == "perfetto" else "overlapped_io"
    overrides = ["numerics=off", "steps=1", "pipeline.repeat_count=2"]
    result = execute(load_job(SCENARIOS / f"{scenario}.yaml", overrides))
    name, content = trace_file(result, trace_format)
    (tmp_path / name).write_bytes(content)
    page = browser.new_page()
    with serve(tmp_path / name, perfetto) as address:
        page.goto(address)
        page.wait_for_function("window.app?.trace?.engine", timeout=60_000)

        def query(text, *names):
            return page.evaluate(QUERY, [text, names])

        wrong = query("select name, value from stats where severity in ('error', 'data_loss') and value > 0", "name")
        assert wrong == []
        _, ours = trace_file(result, "perfetto")
        expected = read_perfetto(gzip.decompress(ours))
        slices = sorted((each.name, each.end_ns - each.start_ns) for each in expected.slices)
        found = query("select name, dur from slice", "name", "dur")
        if trace_format == "perfetto":
            assert sorted(map(tuple, found)) == slices
            assert query("select count(*) as n from counter", "n") == [[sum(map(len, expected.counters.values()))]]
            flows = sum(len(each.arriving) for each in expected.slices)
            assert query("select count(*) as n from flow", "n") == [[flows]]
        else:
            assert len(found) == len(slices)
    page.close()
