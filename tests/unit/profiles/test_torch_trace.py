"""Traces of torch's profiler: which spans are passes of which stage, what they come to, and bounds of any file."""

import gzip
import json
import statistics
import time
from fractions import Fraction
from itertools import count

import pytest

from ipusim.app.profiles import source
from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.app.profiles.written import StagesResult, legal_count, scenario_text
from ipusim.app.scenario import load_job
from ipusim.base.errors import FileError, OptionError
from tests.scenarios import SCENARIOS

SAMPLE = SCENARIOS / "measured_trace.json"
#: Starts of spans, one behind the other.
TIMES = count(0, 10**8)


def span(name, dur, cat="user_annotation", pid=1, tid=1):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": next(TIMES), "dur": dur}


@pytest.fixture
def own(tmp_path):
    def write(*events, name="a.json", rank=None, world=2):
        path = tmp_path / name
        data = {"schemaVersion": 1, "traceEvents": [*events]}
        if rank is not None:
            data["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
        path.write_text(json.dumps(data, indent=1))
        return path

    return write


def medians(stages):
    return {
        name: {what: float(figure.median) for what, figure in figures.items()}
        for name, figures in stages.stages.items()
    }


def test_the_sample_comes_to_medians_by_arithmetic_of_its_own(tmp_path):
    """Each process of the file is a rank; torch names the stage, the kind and the micro-batch."""
    spans: dict[tuple[str, int], list[Fraction]] = {}
    for event in json.loads(SAMPLE.read_text())["traceEvents"]:
        kind = {"F": "forward", "B": "backward"}.get(event["name"][4:5], "update")
        spans.setdefault((kind, event["pid"] - 4100), []).append(Fraction(str(event["dur"])))
    stages = stages_of(read_measured([SAMPLE]))
    for name, figures in stages.stages.items():
        assert {what: figure.median for what, figure in figures.items()} == {
            kind: statistics.median(values) for (kind, rank), values in spans.items() if str(rank) == name
        }
    assert (stages.mapping, stages.count) == ((0, 1, 2, 3), 8)
    (tmp_path / "p.csv").write_bytes(StagesResult(stages).text(".csv"))
    (tmp_path / "p.yaml").write_text(scenario_text(stages, "p.csv", ["t.json"]))
    alone, named = load_job(tmp_path / "p.csv"), load_job(tmp_path / "p.yaml")
    assert alone.program.stages == named.program.stages
    assert [stage.forward for stage in alone.program.stages] == [2_010_295, 2_715_195, 2_808_295, 1_504_895]
    assert (alone.program.shape.micro_batches, named.program.shape.micro_batches) == (16, 8)


def test_times_of_the_host_beside_kernels_are_told(own):
    path = own(span("PP:0F0", 5), span("gemm", 50, "kernel"))
    note, *_ = stages_of(read_measured([path])).notes
    assert note == f"{path}: passes have no spans on the device; the times are of the host."


def test_files_that_state_different_numbers_of_ranks_are_refused(own):
    files = [own(span("Forward 0", rank), name=f"{rank}.json", rank=rank, world=3 + (rank > 2)) for rank in range(4)]
    with pytest.raises(FileError, match=r"expected 3 ranks, as in .*, got 4$"):
        read_measured(files)


def test_a_list_of_events_is_a_trace_too(tmp_path):
    path = tmp_path / "list.json"
    path.write_text(json.dumps([span("PP:0F0", 5), {"ph": "M", "name": "process_name"}, 7]))
    stages = stages_of(read_measured([path]))
    assert medians(stages) == {"0": {"forward": 5}}
    unknown = "The number of micro-batches for each weight update was not measured: the option count sets the number."
    assert legal_count(stages) == (1, "")
    assert legal_count(stages_of(read_measured([path]), count=4)) == (4, "")
    path.write_text(json.dumps([span("fwd", 5)]))
    stages = stages_of(read_measured([path], ["forward=fwd"]))
    assert legal_count(stages) == (None, unknown)
    assert f"# {unknown}\n" in scenario_text(stages, "p.csv", ["list.json"])


def test_stages_that_share_a_rank_share_an_ipu_and_its_update_and_halves_are_halves(own, tmp_path):
    files = [
        own(
            *(
                span(f"PP:{stage}{kind}{n}", 10 * stage + n)
                for n in range(5)
                for kind in "FIW"
                for stage in (rank, rank + 2)
            ),
            span("Optimizer.step#Adam.step", 8),
            name=f"{rank}.json",
            rank=rank,
        )
        for rank in range(2)
    ]
    stages = stages_of(read_measured(files))
    assert stages.mapping == (0, 1, 0, 1)
    assert medians(stages)["3"] == {"forward": 32, "backward_input": 32, "backward_weights": 32, "update": 4}
    assert legal_count(stages) == (
        8,
        "Micro-batches were 5; Grouped takes multiples of 8, and point-to-point schedules take any number.",
    )
    (tmp_path / "p.csv").write_bytes(StagesResult(stages).text(".csv"))
    (tmp_path / "p.yaml").write_text(scenario_text(stages, "p.csv", ["0.json", "1.json"]))
    job = load_job(tmp_path / "p.yaml", ["system.clock=1 GHz", "system.name=m2000"])
    assert (job.program.shape.mapping, job.program.shape.micro_batches) == ((0, 1, 0, 1), 8)
    assert [stage.backward for stage in job.program.stages] == [4000, 24_000, 44_000, 64_000]


def test_names_of_ones_own_take_the_place_of_those_of_the_same_pass(own, refused):
    path = own(span("fwd_encoder", 5), span("fwd_head", 7), span("bwd.1.x", 3), span("PP:0F0", 99), span("step", 2))
    rules = ["encoder.forward=*encoder", "head.forward=fwd_h*", "encoder.backward=bwd.1*"]
    refused(
        FileError,
        f"{path}: expected backward passes of every stage, because stage encoder has some, got none of stage head",
        lambda: stages_of(read_measured([path], rules)),
    )
    stages = stages_of(read_measured([path], [*rules[:2], "update=step"]))
    assert medians(stages) == {"encoder": {"forward": 5, "update": 1}, "head": {"forward": 7, "update": 1}}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            "forward",
            "expected PASS=NAME or STAGE.PASS=NAME, such as forward=fwd_{stage} or encoder.forward=fwd_enc*, got "
            "'forward'",
        ),
        (
            "forwrd=x",
            "expected a pass out of forward, backward, backward_input, backward_weights, update, got 'forwrd'; did you "
            "mean forward?",
        ),
        ("a.forward=x{stage}", "expected the stage once, got it twice in 'a.forward=x{stage}'"),
    ],
)
def test_a_rule_that_is_none_is_refused(own, rule, message, refused):
    refused(OptionError, f"name: {message}", lambda: read_measured([own(span("x", 1))], [rule]))


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (
            [span("aten::mm", 9), span("step", 90)],
            "{0}: expected passes, got none; the longest spans of other names are 'step', 'aten::mm': name the passes "
            "with --name PASS=NAME, because some tools name none (torch's Schedule1F1B)",
        ),
        (
            [span("PP:1F0", 9), span("PP:3F0", 9)],
            "{0}: expected passes of every stage, got none of 0, 2: import the traces of all ranks",
        ),
        (
            [span("Optimizer.step#Adam.step", 9), span("my_fwd", 9)],
            "{0}: expected passes, got weight updates alone; the longest spans of other names are 'my_fwd': name the "
            "passes with --name PASS=NAME, because some tools name none (torch's Schedule1F1B)",
        ),
        ([span("PP:0B0", 9)], "{0}: expected forward passes of every stage, got none of stage 0"),
        (
            [span("PP:0F0", 9), span("Backward 0", 9)],
            "{0}: expected names with a stage for all passes, or for none, got backward passes on rank 0 without a "
            "stage: name these with --name STAGE.backward=NAME",
        ),
    ],
)
def test_what_a_trace_leaves_open_is_told(own, events, message, refused):
    path = own(*events)
    refused(FileError, message.format(path), lambda: stages_of(read_measured([path])))


def test_two_files_of_one_rank_are_two_cycles_and_a_cut_one_is_refused(own):
    first, second = (own(span("PP:0F0", 1), name=name, rank=0, world=1) for name in ("a.json", "b.json"))
    assert stages_of(read_measured([first, second])).stages["0"]["forward"].count == 2
    first.write_bytes(gzip.compress(second.read_bytes())[:-20])
    with pytest.raises(FileError, match=rf"^{first}: expected a whole file packed by gzip"):
        read_measured([first])
    second.write_bytes(second.read_bytes()[:-60])
    with pytest.raises(FileError, match=rf"^{second}:1\d: expected "):
        read_measured([second])


def test_a_number_of_stages_has_to_be_the_names_or_a_divisor_of_the_ranks(own):
    measured = read_measured([own(span("PP:0F0", 1), name="a"), own(span("PP:1F0", 1), name="b")])
    with pytest.raises(OptionError, match="stages: expected 2, the number of stages in the names, got 3"):
        stages_of(measured, 3)
    ranks = read_measured([own(span("Forward 0", 1), name=str(rank), rank=rank, world=4) for rank in range(4)])
    with pytest.raises(OptionError, match="stages: expected a number of stages that divides the 4 ranks, got 3"):
        stages_of(ranks, 3)


@pytest.mark.parametrize("dur", [10**400, 1e18, 75_187_970])
def test_a_pass_longer_than_any_scenario_takes_is_refused_with_its_name_and_value(own, dur):
    path = own(span("PP:0F0", 5), span("PP:0B0", dur))
    with pytest.raises(
        FileError, match=r"expected passes of at most 75,187,969 us, got a dur of 1?[0-9.e+]+ us of "
    ) as no:
        read_measured([path])
    assert str(no.value).startswith(f"{path}: ")
    assert str(no.value).endswith("of the event 'PP:0B0'")
    assert len(str(no.value)) < 500


def test_the_longest_pass_is_imported_and_checked(own, tmp_path):
    stages = stages_of(read_measured([own(span("PP:0F0", 75_187_969), span("PP:0B0", 75_187_969.0))]))
    (tmp_path / "p.csv").write_bytes(StagesResult(stages).text(".csv"))
    (tmp_path / "p.yaml").write_text(scenario_text(stages, "p.csv", ["t.json"]))
    assert load_job(tmp_path / "p.yaml").costs.passes[0, 0] <= 10**11


def test_a_file_above_the_bound_is_refused_with_its_size_unread(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [')
        file.truncate((1 << 33) + 1)  # without taking room on the disk
    with pytest.raises(
        FileError, match=rf"^{path}: expected a file of at most 8 GiB unpacked, got one of 8 GiB or more"
    ):
        read_measured([path])


def test_one_event_too_many_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MOST_EVENTS", 1000)
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"ph": "X", "name": "x", "ts": 0, "dur": 1}] * 1001))
    with pytest.raises(FileError, match=rf"^{path}: expected at most 1,000 events, got more: ask for fewer steps$"):
        read_measured([path])


def test_progress_says_how_far_reading_is(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"ph": "X", "name": "Forward 0", "ts": 0, "dur": 1}] * 100_000))
    said = []
    stages_of(read_measured([path], progress=lambda text: said.append(text())))
    assert said[-1] == "100% of a.json, 99,999 events"  # the last one is taken when nothing comes behind it
    assert "40% of a.json, 19,784 events" in said


@pytest.mark.parametrize(
    "event",
    [
        '{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": %s}' % ("9" * 400),
        '{"ph": "X", "name": "PP:0F0", "ts": %s, "dur": 1}' % ("9" * 400),
        '{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": %s}' % ("9" * 100_000),
        '{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": 1, "args": %s}' % ("[" * 200_000),
        '{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": 1, "args": %s}' % ('{"a":' * 200_000),
    ],
    ids=["digits of a length", "digits of a start", "very many digits", "deep lists", "deep mappings"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_digits_and_depth_are_refused_at_once(tmp_path, event, packed):
    path = tmp_path / "a.json"
    content = f'{{"traceEvents": [{event}]}}'.encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    began = time.process_time()
    with pytest.raises(FileError) as no:
        stages_of(read_measured([path]))
    assert time.process_time() - began < 1
    assert len(str(no.value)) < 1000


def test_an_archive_without_events_is_left_after_its_first_64_mib(tmp_path, monkeypatch):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (1 << 27) + b"]}"))
    taken, read = [], source.Source.read
    monkeypatch.setattr(source.Source, "read", lambda self, size=-1: taken.append(size) or read(self, size))
    with pytest.raises(FileError, match=r"unpacks to 200 times its size or more, without an event in 64 MiB$"):
        read_measured([path])
    assert sum(taken) <= 66 << 20
