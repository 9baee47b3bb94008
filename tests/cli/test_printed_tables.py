"""Every table of every command, read back from terminals of several widths and from a pipe."""

import contextlib
from unittest import mock

import pytest

from ipusim.app.fidelity.micro_benchmarks import benchmark_table, read_benchmarks
from ipusim.app.run_folder import report
from ipusim.app.study.result import Result
from tests.cli.commands import answer
from tests.effort import draws_everything, runs_slowest, sampled
from tests.printed_tables import WIDTHS, assert_whole, recorded
from tests.scenarios import SCENARIOS

#: Changes of one's own, which no others are tried beside.
TRIED = ("--what", "rates.link=x2", "--what", "pipeline.repeat_count=2")
#: Commands that print tables, quick ones; those of all throughputs are in ``test_validate``.
COMMANDS = (
    ("run", "selection_orders.yaml", "--verbose"),
    ("run", "memory_by_schedule.yaml", "--verbose"),
    ("run", "bert_large.yaml", "--set", "pipeline.gradient_accumulation_count=20", "--verbose"),
    ("run", "digits_training.yaml", *("--set", "steps=2", "--set", "pipeline.repeat_count=1"), "--verbose"),
    ("run", "zero_bubble.yaml", *("--set", "steps=1", "--set", "pipeline.repeat_count=1"), "--verbose"),
    ("compare", "memory_by_schedule.yaml"),
    ("compare", "gpu_schedules.yaml", "--schedules", "1f1b,gpipe,grouped", "--sync", "lock_step,point_to_point"),
    ("compare", "memory_by_schedule.yaml", str(SCENARIOS / "selection_orders.yaml")),
    ("sweep", "schedules_four_ipus.yaml", "--vary", "pipeline.gradient_accumulation_count=8,16,32", "--workers", "1"),
    ("explain", "data_parallel_4x4.yaml", "--set", "steps=1", *TRIED),
    ("explain", "gpu_schedules.yaml"),
    ("check", "data_parallel_4x4.yaml", "--costs"),
    ("check", "measured_stages.yaml", "--profile", str(SCENARIOS / "measured_stages.csv")),
    ("devices", "c2_server", "--figures"),
    ("devices", "bow_pod64", "--figures"),
)
#: A table of costs of 92 rows, beside the shorter one of those above.
LONGER = (("check", "gpt2.yaml", "--costs"),)


#: What makes the files of commands.
FILES = ((report, "run_files"), (Result, "files"))


def no_files(*_, **_options):
    return {}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Every table that the commands print; pictures and files are other tests' business."""
    with contextlib.ExitStack() as around:
        found = around.enter_context(recorded())
        for module, name in FILES:
            around.enter_context(mock.patch.object(module, name, no_files))
        for verb, name, *words in (*COMMANDS, *(LONGER if draws_everything() else ())):
            out = ("--out", tmp_path_factory.mktemp("out")) if verb in ("run", "compare", "sweep", "explain") else ()
            scenario = SCENARIOS / name if name.endswith(".yaml") else name
            answer(verb, scenario, *words, *out, pictures=False)
    assert len(found) > 40
    return [*found, benchmark_table(read_benchmarks())]


@sampled(2)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_cell_of_every_table_is_printed_whole(tables, width):
    """By default in the narrowest terminal, where most is broken, and one table in three in each of the others."""
    if not runs_slowest() and width != min(filter(None, WIDTHS)):
        tables = tables[WIDTHS.index(width) % 3 :: 3]
    for table in tables:
        assert_whole(table, width)
