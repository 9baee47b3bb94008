"""Rates from a YAML file beside the scenario: the values of a mapping of its own, and what is wrong with it told."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest

from ipusim.analysis.effects import effects_of
from ipusim.app.scenario import ScenarioError
from ipusim.base.errors import FileError
from ipusim.hardware.rates import DEFAULT_RATES, RATES
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError
from ipusim.runs.request.rates_file import read_rates
from ipusim.runs.request.request import Request
from tests.cli.commands import ipusim
from tests.scenarios import SCENARIOS

TUTORIAL = (SCENARIOS / "tutorial_step3_pipelining.yaml").read_text()


OWN = "mine.yaml"


def test_a_scenario_takes_the_file_beside_it_in_the_place_of_a_mapping(load, own):
    own("# measured\namp_ceiling: 0.4   # of peak\nhop_latency: 20 ns\nrung_links: 6\nlink_efficiency: null\n")
    here = load(TUTORIAL, "rates={amp_ceiling: 0.4, hop_latency: 20 ns, rung_links: 6}")
    there = load(f"{TUTORIAL}rates: mine.yaml\n")
    assert there.system.rates == here.system.rates
    assert there.costs == here.costs != load(TUTORIAL).costs
    assert (there.system.rates.file, here.system.rates.file) == ("mine.yaml", "")
    assert effects_of(there.program, there.system) == effects_of(here.program, here.system)


def test_tables_name_the_file_of_the_rates_that_it_changes(load, own, tmp_path):
    own("amp_ceiling: 0.4\nvector_slowdown: 3.053\n")
    rates = load(TUTORIAL, "rates=mine.yaml").system.rates
    by_name = {rate.name: rate for rate in RATES}
    assert rates.source_of(by_name["amp_ceiling"]) == "mine.yaml"
    assert rates.source_of(by_name["vector_slowdown"]) == by_name["vector_slowdown"].source
    done = ipusim("check", tmp_path / "scenario.yaml", "--set", "rates=mine.yaml", "--costs", columns="")
    assert re.search(r"^ amp_ceiling +mine\.yaml *$", done.stdout, re.MULTILINE)
    assert done.stdout.count("mine.yaml") == 1


def test_the_dict_door_takes_it_from_its_folder(tmp_path, own, refused):
    own("amp_ceiling: 0.5\nsession_run: 200 ms\n")
    request = Request.from_dict(
        {
            "system": {"name": "m2000"},
            "pipeline": {"stages": [{"name": "a", "forward": 5}, {"name": "b", "forward": 5}]}
            | {"gradient_accumulation_count": 4},
            "rates": (tmp_path / "mine.yaml").name,
        },
        folder=tmp_path,
    )
    wanted = DEFAULT_RATES.with_values(amp_ceiling=Fraction(1, 2), session_run_ns=Fraction(200_000_000))
    for each in (request, request.replace({"seed": 1})):
        found = assemble(each).system.rates
        assert (found, found.file) == (replace(wanted, file="mine.yaml"), "mine.yaml")
    own("amp_ceiling: 5\n")
    text = "rates: mine.yaml:1:14: amp_ceiling: expected a number from 0.01 to 1, got 5"
    refused(RequestError, text, lambda: assemble(request))


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            "session_run: 2 d\namp_ceiling: true\nrung_links:\n  6.5\namp_ceilin: 1\nhop_latency: 2 s\nlink: 1 B/s\n",
            [
                "mine.yaml:1:14: session_run: expected seconds in one of s, ms, us, µs, ns such as '3.7 us', got '2 d'",
                "mine.yaml:2:14: amp_ceiling: expected a number from 0.01 to 1, got true",
                "mine.yaml:4:3: rung_links: expected a whole number from 1 to 10, got 6.5",
                "mine.yaml:5:1: amp_ceilin: got 'amp_ceilin'; did you mean amp_ceiling? Expected one of the keys "
                "amp_ceiling, rail_links, program_code, gateway_link, gateway_links, link, rung_crossing_links, "
                "rung_links, compute_set_code, hop_latency, machine_rung, compute_set_cycles and "
                f"{len(RATES) - 12} more, which `ipusim check --schema` lists",
                "mine.yaml:6:14: hop_latency: expected seconds from 0 s to 1 s, as a number or with a unit such as "
                "3.7 us, got '2 s'",
                "mine.yaml:7:7: link: expected bytes per second from 1 MB/s to 100 TB/s, as a number or with a unit "
                "such as 64 GB/s, got '1 B/s'",
            ],
        ),
        (
            "rail_links: 1\nrail_links: 2\n",
            [
                "mine.yaml:2:1: rail_links: expected each key once, got this key a second time (first at "
                "mine.yaml:1:1)",
            ],
        ),
        ("", ["mine.yaml: expected a mapping of rates such as 'amp_ceiling: 0.9', got an empty file"]),
        ("# none\n- 1\n", ["mine.yaml:2:1: expected a mapping of rates such as 'amp_ceiling: 0.9', got [1]"]),
        ("a: 1\n---\nb: 2\n", ["mine.yaml:2:1: expected one document in a file, got a second one after '---'"]),
        (b"a: \xff\n", ["mine.yaml: expected text in UTF-8: invalid start byte at byte 3"]),
        (b"#" * (2**17 + 1), ["mine.yaml: expected a file of at most 128 KiB, got a larger one"]),
    ],
)
def test_all_that_is_wrong_with_a_file_is_told_with_its_places(load, own, text, messages, refused):
    path = own(text)
    refused(FileError, "\n".join(messages), lambda: read_rates(path, "mine.yaml"))
    with pytest.raises(ScenarioError) as placed:
        load(TUTORIAL, "rates=mine.yaml")
    assert str(placed.value).splitlines() == [f"--set rates: {message}" for message in messages]


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ("none.yml", "expected a file that can be read, got {}/none.yml: No such file or directory"),
        ("folder.yaml", "expected a file that can be read, got {}/folder.yaml: expected a file, got a folder"),
        ("mine.txt", "expected a YAML file with a line for each rate, such as rates.yaml, got 'mine.txt'"),
        ("5", "or a YAML file with a line for each rate, such as rates.yaml"),
    ],
)
def test_a_name_that_leads_to_no_rates_is_refused(load, tmp_path, rates, message):
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ScenarioError, match=f"^--set rates: .*{re.escape(message.format(tmp_path))}$"):
        load(TUTORIAL, f"rates={rates}")


def test_what_goes_with_no_mapping_of_rates_goes_with_no_file_of_them(load, own):
    own("amp_ceiling: 0.4\nhop_latency: 20 ns\npair_exchange: 2 us\n")
    with pytest.raises(ScenarioError) as caught:
        load(TUTORIAL, "rates=mine.yaml", "system.name=free")
    free = "expected no cost on the free system, where copies and the host are free, got a cost"
    assert str(caught.value).splitlines() == [
        f"--set rates: rates.{name}: {free}" for name in ("hop_latency", "pair_exchange")
    ]
    with pytest.raises(ScenarioError, match=r"rates.pair_exchange: expected this rate or system.overhead"):
        load(TUTORIAL, "rates=mine.yaml", "system.overhead=1 us")
