"""The scenario of a run: it asks for the same, wherever it lies, and says so in plain YAML."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ipusim.app.scenario import load_request
from ipusim.app.scenario.write import scenario_text
from ipusim.base.files import MAX_SCENARIO_BYTES
from ipusim.runs.request.request import Request
from ipusim.schedules import registry
from tests.effort import sampled
from tests.scenarios import SCENARIOS, timed

TIMED = timed(2)


def again(request: Request, folder: Path) -> Request:
    """Write a request as a scenario in ``folder`` and read that."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.yaml").write_text(scenario_text(request, folder, ["Written by a test."]), "utf-8")
    return load_request(folder / "scenario.yaml")


@sampled(2)
@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_is_asked_for_again_from_another_folder(path, tmp_path):
    request, folder = load_request(path), tmp_path / "reports" / "run"
    found = again(request, folder)
    assert (found.name, found.description, found.folder) == (request.name, request.description, folder)
    assert found.to_dict(path.parent) == request.to_dict() | {"name": request.name}
    back = again(found, path.parent) if path.parent == tmp_path else found.to_dict(path.parent)
    assert Request.from_dict(back, description=request.description, folder=path.parent).options == (
        request.replace({"name": request.name}).options
    )


def test_names_of_files_lead_to_the_same_files_and_absolute_ones_stay(tmp_path):
    home, folder = tmp_path / "home", tmp_path / "far" / "away"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    data = TIMED | {
        "data": {"type": "idx", "images": "data/images.gz", "labels": "/data/labels.gz"},
        "rates": "rates.yaml",
        "pipeline": TIMED["pipeline"]
        | {
            "schedule": "mine.py:gpipe",
            "stages": [{"name": "first", "python": "own/stages.py:first"}, {"name": "last", "forward": 3}],
        },
    }
    request = Request.from_dict(data, folder=home)
    for seen in (folder, tmp_path / "link"):
        found = again(request, seen).options
        assert (found.data.images, found.data.labels) == ("../../home/data/images.gz", "/data/labels.gz")
        assert (found.rates, found.pipeline.schedule) == ("../../home/rates.yaml", "../../home/mine.py:gpipe")
        assert found.pipeline.stages[0].python == "../../home/own/stages.py:first"
    by_row = Request.from_dict({**TIMED, "pipeline": {**TIMED["pipeline"], "cycles": "measured.csv"}}, folder=home)
    assert again(by_row, folder).options.pipeline.cycles == "../../home/measured.csv"
    assert again(by_row, home).options.pipeline.cycles == "measured.csv"


def test_the_text_is_what_a_person_would_write(tmp_path):
    request = Request.from_dict(
        {**TIMED, "optimizer": "none", "infeed": {"element_bytes": "4 KiB"}, "rates": {"hop_latency": "20.5 ns"}},
        name="two",
        description="Two stages of the same length.",
    ).replace({"pipeline.stages.0.forward": "1.2 ms"})
    assert scenario_text(request, tmp_path, ["Written by a test."]) == (
        "# Two stages of the same length.\n"
        "\n"
        "# Written by a test.\n"
        "name: two\n"
        "system: {name: m2000}\n"
        "pipeline:\n"
        "  stages:\n"
        "  - {name: s0, forward: 1.2 ms, backward: 2000}\n"
        "  - {name: s1, forward: 1000, backward: 2000}\n"
        "  gradient_accumulation_count: 8\n"
        "optimizer: null\n"
        "infeed: {element_bytes: 4096}\n"
        "rates: {hop_latency: 2.05e-08}\n"
    )
    assert replace(again(request, tmp_path), folder=Path()) == request.replace({"name": "two"})


def test_no_scenario_asks_for_what_only_a_program_can(tmp_path):
    request = Request.from_dict(TIMED)
    assert scenario_text(request, tmp_path) is not None
    assert scenario_text(replace(request, functions=object()), tmp_path) is None
    third = request.replace({"rates": {"hop_latency": Fraction(1, 3 * 10**8)}})
    assert scenario_text(third, tmp_path) is None
    many = [{"name": f"a_layer_of_a_long_name_{n}" + "x" * 30, "type": "dense", "units": 8} for n in range(1024)]
    large = Request.from_dict({**TIMED, "model": {"layers": many * 1}})
    text = scenario_text(large, tmp_path)
    assert text is not None
    assert len(text) < MAX_SCENARIO_BYTES
    with registry.temporarily():
        registry.register(replace(registry.find("gpipe"), name="my_own"))
        assert scenario_text(request.replace({"pipeline.schedule": "my_own"}), tmp_path) is None


def test_a_name_that_only_a_file_can_have_is_left_to_the_file(tmp_path):
    found = again(Request.from_dict(TIMED, name="4 IPUs"), tmp_path)
    assert (found.name, found.options) == ("scenario", Request.from_dict(TIMED).options)
