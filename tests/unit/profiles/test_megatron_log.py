"""Logs of Megatron-LM's timers on all ranks, as stages."""

import gzip
import re
import statistics
from fractions import Fraction

import pytest

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.base.errors import FileError
from tests.scenarios import SCENARIOS
from tests.unit.profiles.test_torch_trace import medians

SAMPLE = SCENARIOS / "measured_timers.log"
BLOCK = """\
pipeline_model_parallel_size .......... 2
times across ranks (ms):
  forward-compute:
     rank  0: 8.00
     rank  1: 16.00
  backward-compute:
     rank  0: 20.00
     rank  1: 40.00
  optimizer:
     rank  0: 3.50
     rank  1: 3.25
"""


OWN = "train.log"


def test_the_sample_comes_to_medians_by_arithmetic_of_its_own():
    """Eight ranks hold four stages, two replicas of each; a time is that of eight micro-batches."""
    times: dict[tuple[str, int], list[Fraction]] = {}
    timer = ""
    for line in SAMPLE.read_text().splitlines():
        if header := re.fullmatch(r"  ([a-z-]+):", line):
            timer = header[1]
        elif row := re.fullmatch(r"     rank +(\d+): ([\d.]+)", line):
            times.setdefault((timer, int(row[1]) // 2), []).append(Fraction(row[2]) * 1000)
    stages = stages_of(read_measured([SAMPLE]))
    assert (len(stages.stages), stages.mapping, stages.count) == (4, (0, 1, 2, 3), 8)
    for number, figures in enumerate(stages.stages.values()):
        assert {what: figure.median for what, figure in figures.items()} == {
            "forward": statistics.median(times["forward-compute", number]) / 8,
            "backward": statistics.median(times["backward-compute", number]) / 8,
            "update": statistics.median(times["optimizer", number]),
        }


def test_the_count_is_the_logs_or_an_options(own):
    path = own(BLOCK)
    with pytest.raises(FileError, match=r"set the option count to the micro-batches of an iteration$"):
        read_measured([path])
    headless = own(BLOCK.partition("\n")[2], "headless.log")
    with pytest.raises(FileError, match=r"pipeline_model_parallel_size, got none: set the option stages to the number"):
        stages_of(read_measured([headless], count=4))
    assert len(stages_of(read_measured([headless], count=4), 2).stages) == 2
    expected = {
        "0": {"forward": 2000, "backward": 5000, "update": 3500},
        "1": {"forward": 4000, "backward": 10_000, "update": 3250},
    }
    assert medians(stages_of(read_measured([path], count=4))) == expected
    said = own(f"> setting number of micro-batches to constant 4\n{BLOCK}")
    assert medians(stages_of(read_measured([said]))) == expected
    assert medians(stages_of(read_measured([said], count=8)))["0"]["forward"] == 1000
    assert medians(stages_of(read_measured([own(gzip.compress(said.read_bytes()), "train.log.gz")]))) == expected


def test_lines_of_others_between_blocks_and_before_each_line_are_no_matter(own):
    prefixed = "".join(f"[default3]: {line}\n" for line in BLOCK.splitlines())
    noise = b"\xff" * 3000 + b"\n iteration 2/ 10 | rank  0: 99.0\n  rank  0: 99.0\nvalidation:\n  rank  1: 5.00\n"
    path = own(prefixed.encode() + noise + BLOCK.encode())
    stages = stages_of(read_measured([path], count=1))
    assert [figure.count for figures in stages.stages.values() for figure in figures.values()] == [2] * 6
    assert medians(stages)["1"]["forward"] == 16_000


def test_other_timers_by_name(own, refused):
    path = own(BLOCK.replace("forward-compute", "fwd"))
    message = f"{path}: expected forward passes of every stage, got none of stage 0"
    refused(FileError, message, lambda: stages_of(read_measured([path], count=1)))
    assert medians(stages_of(read_measured([path], ["forward=fwd"], 1)))["0"]["forward"] == 8000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x\n(min, max) time across ranks (ms):\n    forward-compute ......: (1.00, 2.00)\n",
            ":2: expected 'times across ranks (ms):', got times without ranks and without stages: log with "
            "--timing-log-option all",
        ),
        (
            "time (ms) | forward-compute: 211.64 | optimizer: 3.0\n",
            ":1: expected 'times across ranks (ms):', got times without ranks and without stages: log with "
            "--timing-log-option all",
        ),
        (
            "times across ranks (ms):\n  interval-time:\n     rank  0: 1.00\n",
            ": expected timers named forward-compute, backward-compute, optimizer, got interval-time: log with "
            "--timing-log-level 2, or name the timers with --name PASS=NAME",
        ),
        (
            "stage,forward\na,1\n",
            ": expected a trace, JSON, or a log of Megatron-LM with 'times across ranks (ms):', got neither",
        ),
    ],
)
def test_what_a_log_lacks_is_told(own, text, message, refused):
    path = own(text)
    refused(FileError, f"{path}{message}", lambda: read_measured([path]))


def test_stages_that_do_not_divide_the_ranks_and_several_logs_are_refused(own, refused):
    path = own(BLOCK.replace("size .......... 2", "size .......... 3"))
    message = (
        "expected a number of stages that divides the 2 ranks, got 3: set the option stages to the number of stages"
    )
    refused(FileError, f"{path}: {message}", lambda: stages_of(read_measured([path], count=1)))
    assert len(stages_of(read_measured([path], count=1), 1).stages) == 1
    with pytest.raises(FileError, match="expected each file once, got one twice"):
        read_measured([path, path])
    trace = own("[]", "t.json")
    with pytest.raises(FileError, match=rf"^{trace}: expected a log of Megatron-LM, as in {path}, got a trace, JSON: "):
        read_measured([path, trace])
