"""The page of the figures of ``summary.json`` has every key that runs write, with a meaning, and no other."""

import re

import pytest

from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from reports.figures_page import figure_rows
from tests.scenarios import SCENARIOS

_NAMED = "options."


def leaves(value, path=""):
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for each in value:
            yield from leaves(each, f"{path}[]")
    else:
        yield path


@pytest.fixture(scope="module")
def written():
    runs = (
        ("digits_training.yaml", ["steps=2"]),
        ("data_parallel_4x4.yaml", ["steps=2"]),
        ("schedules_four_ipus.yaml", ["disturbances=[{ipu: 1, slower: 2}, {link: [0, 1], dead: true}]"]),
    )
    summaries = [execute(load_job(SCENARIOS / name, changes)).summary.to_dict() for name, changes in runs]
    paths = {path for summary in summaries for path in leaves(summary)}
    return {re.sub(r"^(disturbances\.idle_cycles\.).*", r"\1NAME", path) for path in paths}


def test_every_key_that_runs_write_has_its_row(written):
    named = {path for path, _, _ in figure_rows()}
    empty = {path.removesuffix("[]") for path in named} | {path.partition(".")[0] for path in named}
    assert {path for path in written if not path.startswith(_NAMED)} - named - empty == set(), (
        "keys of summary.json without a meaning: add it to the docstring of their class, or to reports/figures_page.py"
    )
    assert {path for path in named - written if not path.startswith(("options", "notes", "idle_ipus"))} == set(), (
        "reports/figures_page.py has keys that no run writes: take them out"
    )


def test_every_row_has_a_meaning_and_every_key_is_snake_case():
    rows = list(figure_rows())
    assert len({path for path, _, _ in rows}) == len(rows), "reports/figures_page.py has a key twice"
    for path, _, meaning in rows:
        assert meaning
        assert re.fullmatch(r"[a-z0-9_]+(\[\])?(\.[a-z0-9_]+(\[\])?)*(\.NAME)?", path)
