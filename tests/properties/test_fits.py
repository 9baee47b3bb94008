"""Whether a drawn scenario fits its memory: one word for it, by hand, and the same in every command and file.

The word is found a second time from the bytes of the IPUs' peaks, the code among them that is estimated, and what the
scenario says of its stages.
"""

import csv
import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from ipusim.api import RequestMemoryError, assemble, execute
from ipusim.app.compare.compare import ComparedItem, compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import ComparisonResult
from ipusim.app.compare.comparison_words import comparison_table
from ipusim.app.explain.explanation import explain
from ipusim.app.explain.memory_moves import memory_moves
from ipusim.app.explain.memory_words import moves_table
from ipusim.app.page.page import report_page
from ipusim.app.regression.expectations import judged_before
from ipusim.app.render.verdict import verdict_table
from ipusim.app.run_folder.stored import read_run
from ipusim.app.study.result import json_bytes
from ipusim.app.sweep.measures import THROUGHPUT
from ipusim.app.sweep.report import SweepResult, sweep_table
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axis_of
from ipusim.runs.request.request import Request
from tests.cli.commands import ipusim
from tests.effort import draws_everything, sampled, share

EXAMPLES, LEAST, WITH_COMMANDS = 300, 60, 8
COUNT = "pipeline.gradient_accumulation_count"
FITS, WITHOUT, NOT, UNKNOWN = (
    "fits",
    "fits only without the estimated code",
    "does not fit",
    "not known",
)
WORDS = (FITS, WITHOUT, NOT, UNKNOWN)
SRAM, MIB = 897 << 20, 1 << 20
#: What a stage says of what it holds.
HELD = ("parameter_bytes", "state_bytes", "stash_bytes")


def timed(random: random.Random, held: int, *, known: bool) -> dict:
    """Return a scenario of stages known by their cycles, whose fullest says ``held`` bytes, or none says any."""
    count = random.randint(1, 4)
    stages = [
        {"name": f"s{number}", "forward": 1000 * random.randint(1, 9), "backward": 2000 * random.randint(1, 9)}
        for number in range(count)
    ]
    for stage in stages[:-1]:
        stage["output_bytes"] = 1024 * random.randint(1, 64)
    if known:
        for stage in random.sample(stages, random.randint(1, count)):
            stage[random.choice(HELD)] = random.randint(1, held)
        stages[random.randrange(count)]["parameter_bytes"] = held
    pipeline = {"gradient_accumulation_count": 2 * count * random.randint(1, 3), "stages": stages}
    pipeline["schedule"] = random.choice(["grouped", "interleaved", "1f1b", "gpipe"] if count > 1 else ["single"])
    return {"system": {"name": "pod16", "auto_select_ipus": 1 << (count - 1).bit_length()}, "pipeline": pipeline}


def dense(random: random.Random, rate: int) -> dict:
    """Return a scenario of layers, each of whose compute sets is estimated to take ``rate`` bytes of code."""
    units = [2 ** random.randint(3, 6) for _ in range(random.randint(1, 3))]
    layers = [{"name": f"d{number}", "type": "dense", "units": size} for number, size in enumerate(units)]
    layers.append({"name": "loss", "type": "softmax_cross_entropy"})
    splits = [layer["name"] for layer in layers[1:] if random.random() < 0.5]
    return {
        "system": {"name": "pod16", "auto_select_ipus": 1 << len(splits).bit_length() if splits else 1},
        "numerics": "off",
        "data": {"type": "synthetic", "shape": [8], "classes": 2, "samples": 64},
        "model": {"layers": layers},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
        "rates": {"program_code": rate},
        "pipeline": {
            "splits": splits,
            "schedule": random.choice(["grouped", "1f1b"] if splits else ["single"]),
            "micro_batch_size": random.choice([1, 2, 4]),
            "gradient_accumulation_count": 2 * (len(splits) + 1),
        },
    }


def drawn(seed: int) -> dict:
    """Return a scenario near one of the four answers in turn, in one of several ways."""
    draw = random.Random(f"fits {seed}")
    turn, way = seed % len(WORDS), draw.random()
    if turn == 0:
        data = (
            timed(draw, draw.randint(1, 200 * MIB), known=True) if way < 0.5 else dense(draw, draw.randint(1, 500_000))
        )
        if way < 0.1:
            data["memory"] = "off"
    elif turn == 1:
        data = dense(draw, draw.randint(640_000, 1_000_000))  # of 1,472 tiles
    elif turn == 2 and way < 0.7:
        data = timed(draw, draw.randint(SRAM // 2 + 1, 2 * SRAM), known=True)
    elif turn == 2 and way < 0.85:  # what only moves is too much by itself
        data = timed(draw, 0, known=False)
        data["infeed"] = {"element_bytes": SRAM * 2}
    elif turn == 2:  # Streaming Memory
        data = timed(draw, 40 * MIB, known=True)
        data["pipeline"]["stages"][0]["state_bytes"] = 80 * MIB
        data["pipeline"]["offload_weight_update_variables"] = True
        data["system"] |= {"enable_remote_buffers": True, "streaming_memory": {"capacity": "1 MiB"}}
    else:
        data = timed(draw, 0, known=False)
        if way < 0.3:
            data["memory"] = "off"
    return {"memory": "report", **data}


def by_hand(data: dict, job) -> str:
    """Return the word for a scenario, from the bytes of its IPUs and what it says."""
    limited = data["memory"] != "off"
    peaks = {peak.ipu: peak.bytes for peak in job.memory.peaks} if limited else {}
    assumed = {held.ipu: held.assumed_bytes for held in job.memory.footprint.ipus}
    remote = sum(held.remote_bytes for held in job.memory.footprint.ipus) * job.system.replicas
    small = data["system"].get("streaming_memory") and limited and remote > MIB
    if small or any(size - assumed[ipu] > SRAM for ipu, size in peaks.items()):
        return NOT
    if "model" not in data and not any(stage.get(key) for stage in data["pipeline"]["stages"] for key in HELD):
        return UNKNOWN
    return WITHOUT if any(size > SRAM for size in peaks.values()) else FITS


def word_in(text: str) -> str:
    """Return the answer in a sentence on memory, of which one is a part of another."""
    (sentence,) = re.findall(r"^(?:Memory: )?((?:every IPU )?(?:fits|does|not known).*)$", text, re.MULTILINE)
    return next(word for word in (WITHOUT, NOT, UNKNOWN, FITS) if word in sentence)


def page_data(page: bytes) -> dict:
    """Return the data of a page as its script reads them."""
    return json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', page.decode(), re.DOTALL)[1])


def words_of(data: dict, place: Path) -> dict[str, str]:
    """Return the word for a scenario at every door, without the command line."""
    request = Request.from_dict(data, name="drawn", folder=place)
    job = assemble(request)
    run = execute(job)
    told = {"check": word_in(job.memory.verdict()), "run": word_in(dict(verdict_table(run.summary).rows)["memory"])}
    count = data["pipeline"]["gradient_accumulation_count"]
    swept = sweep(request, [axis_of(COUNT, [count])])
    told["sweep"] = SweepResult(swept).rows()[0]["fits"]
    told["sweep.csv"] = next(csv.DictReader(SweepResult(swept).text(".csv").decode().splitlines()))["fits"]
    told["sweep's table"] = sweep_table(swept, THROUGHPUT).rows[0][-1]
    rows = Comparison(compare(request, [data["pipeline"]["schedule"]]))
    told["compare"] = ComparisonResult(rows).data()[0]["fits"]
    mark = comparison_table(rows).rows[0][-1]
    told["compare's mark"] = told["compare"] if mark == "best" else mark
    assert (mark == "best") == (rows.best is not None) == (told["compare"] in (FITS, UNKNOWN))
    why = explain(run.timeline, job, texts=[f"{COUNT}={count}"])
    said = json.loads(json_bytes(why.data()))
    told["explain"], told["explain's change"] = said["fits"], said["what_if"][0]["fits"]
    told["explain's table"] = next(iter(why.tables())).rows[0][-1].partition(", by ")[0]
    told["explain's words"] = next((word_in(text) for text in why.words() if text.startswith("Memory: ")), FITS)
    summary = json_bytes(run.summary.to_dict())
    told["summary.json"] = json.loads(summary)["memory"]["fits"]
    (place / "summary.json").write_bytes(summary)
    run.timeline.save(place / "timeline.npz")
    told["run folder"] = read_run(place).fits
    told["page"] = page_data(report_page([place]))["runs"][0]["fits"]
    both = Comparison(compare([ComparedItem(request, "asked"), ComparedItem(read_run(place), "ran")]))
    told["folder compared"] = ComparisonResult(both).data()[1]["fits"]
    if told["check"] != UNKNOWN:
        expected = assemble(request.replace({"expect": {"memory": told["check"]}}))
        ((judged,), _) = judged_before(expected)
        told["expect"] = judged.value
        assert judged.is_met
    if data["memory"] == "report":
        told["check's table"] = moves_table(memory_moves(job)).rows[0][3]
        try:
            assemble(request.replace({"memory": "error"}))
        except RequestMemoryError as error:
            told["refusal"] = error.job.memory.fits
            assert told["refusal"] == NOT
        else:
            assert told["check"] != NOT
    return {door: str(word) for door, word in told.items()}


def test_every_door_says_the_word_that_is_found_by_hand(tmp_path):
    found = Counter()
    for seed in range(share(EXAMPLES)):
        data = drawn(seed)
        place = tmp_path / str(seed)
        place.mkdir()
        word = by_hand(data, assemble(Request.from_dict(data, name="drawn", folder=place)))
        told = words_of(data, place)
        assert told == dict.fromkeys(told, word), (seed, data)
        found[word] += 1
    assert sum(found.values()) == share(EXAMPLES)
    if draws_everything():
        assert all(found[word] >= LEAST for word in WORDS), found
    assert {*found} == {*WORDS}


@sampled(3)
@pytest.mark.parametrize("seed", range(WITH_COMMANDS))
def test_check_says_the_word_too_and_of_a_suggested_file_what_suggest_said(seed, tmp_path):
    data = drawn(seed)
    (tmp_path / "s.yaml").write_text(json.dumps(data))  # which is YAML
    word = by_hand(data, assemble(Request.from_dict(data, name="s", folder=tmp_path)))
    assert word_in(ipusim("check", "s.yaml", cwd=tmp_path).stdout) == word
    done = ipusim("suggest", "s.yaml", "--replicas", "1", "--out", "best.yaml", cwd=tmp_path)
    if done.returncode:
        assert not (tmp_path / "best.yaml").exists()
        assert word in (WITHOUT, NOT)
        assert "No plan in the search fits" in done.stderr
        return
    (given,) = re.findall(r"^ *given .*$", done.stdout, re.MULTILINE)
    share, verdict = re.fullmatch(r"(\d+%)?(?:, )?(.*)", re.split(r" {2,}", given.strip())[-3]).groups()
    assert (verdict or (share and FITS)) == word
    (sentence,) = re.findall(r"^Memory: .*$", done.stdout, re.MULTILINE)
    assert word_in(sentence) in (FITS, UNKNOWN)
    assert sentence in ipusim("check", "best.yaml", cwd=tmp_path).stdout.splitlines()
    assert ("does not fit" in done.stdout) <= (word in (WITHOUT, NOT))
