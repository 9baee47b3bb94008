"""Programs that do not fit: check and run say the same, at the value to change first, with advice that helps."""

import pytest

from ipusim.app.cli import main
from ipusim.app.scenario import ScenarioMemoryError
from ipusim.base.errors import OutOfMemoryError
from ipusim.runs.execute import execute

TIMED = """\
system: {name: m2000}
pipeline:
  gradient_accumulation_count: 4
  stages:
    - {name: a, forward: 10, backward: 20, output_bytes: 8}
    - {name: b, forward: 10, backward: 20}
infeed: {element_bytes: 8}
"""
COUNTED = """\
system: {name: m2000}
data: {type: synthetic, shape: [65536], classes: 2, samples: 256}
precision: float64
numerics: off
model:
  layers:
    - {name: a, type: layer_norm}
    - {name: b, type: dense, units: 4}
    - {name: c, type: dense, units: 4}
    - {name: d, type: dense, units: 2}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  splits: [b, c, d]
  gradient_accumulation_count: 8
  allow_recompute: true
  micro_batch_size: 256
optimizer: {type: sgd, learning_rate: 0.1}
"""


@pytest.mark.parametrize(
    ("change", "place", "remedy"),
    [
        (
            "pipeline.stages.0.stash_bytes=1 GiB",
            ":3:3: pipeline.allow_recompute",
            "Set allow_recompute, use the schedule interleaved with half the FIFO depth, or cut the model into more "
            "stages on more IPUs.",
        ),
        (
            "pipeline.stages.0.parameter_bytes=1 GiB",
            ":3:3: pipeline.device_mapping",
            "Cut the model into more stages on more IPUs, or move layers to an IPU with room.",
        ),
        (
            "pipeline.stages.0.state_bytes=1 GiB",
            ":1:9: system.enable_remote_buffers",
            "Keep the optimizer's state in Streaming Memory with system.enable_remote_buffers, if the machine has "
            "Streaming Memory, or cut the model into more stages on more IPUs.",
        ),
        ("code_bytes=1 GiB", "--set code_bytes", "Use fewer code_bytes, or cut the model into more stages on more"),
        (
            "infeed.element_bytes=1 GiB",
            "--set infeed.element_bytes",
            "Make infeed.element_bytes smaller: a whole element of the infeed lies on this IPU.",
        ),
        (
            "outfeed.element_bytes=1 GiB",
            "--set outfeed.element_bytes",
            "Make outfeed.element_bytes smaller: a whole element of the outfeed lies on this IPU.",
        ),
    ],
)
def test_a_program_that_does_not_fit_is_refused_at_the_value_to_change(load, change, place, remedy):
    with pytest.raises(ScenarioMemoryError) as caught:
        load(TIMED, change)
    assert isinstance(caught.value, OutOfMemoryError)
    head, _, text = str(caught.value).partition(": Out of memory on IPU ")
    assert head.endswith(place)
    assert remedy in text
    assert text.endswith(
        " With memory: report the program runs anyway; `ipusim check` lists the memory and time of each change."
    )
    assert execute(load(TIMED, change, "memory=report")).memory.too_large


def test_check_on_the_command_line_ends_as_run_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big.yaml").write_text(TIMED)
    said = []
    for verb in ("check", "run"):
        monkeypatch.setattr("sys.argv", ["ipusim", verb, "big.yaml", "--set", "code_bytes=1 GiB"])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        said.append(capsys.readouterr())
    assert said[0].err == said[1].err
    assert "Changes that take less memory" in said[0].out
    assert said[0].err.startswith("--set code_bytes: Out of memory on IPU 0: ")
    assert [path.name for path in tmp_path.iterdir()] == ["big.yaml"]


def test_recomputation_that_keeps_the_feeds_element_is_told_from_a_stage_that_keeps_too_much(load):
    """The first stage's FIFO keeps its input, which is the feed's element: no cut of the model makes it smaller."""
    keeps_input = ("pipeline.allow_recompute=true", "infeed.element_bytes=500 MiB")
    with pytest.raises(ScenarioMemoryError, match=r"^--set infeed.element_bytes: .* Make infeed.element_bytes smaller"):
        load(TIMED, *keeps_input)
    with pytest.raises(ScenarioMemoryError, match=r"pipeline\.device_mapping: .* Cut the model into more stages"):
        load(TIMED, "pipeline.stages.1.stash_bytes=1 GiB", "pipeline.allow_recompute=true")


@pytest.mark.parametrize(
    ("changes", "key", "remedy"),
    [
        (["pipeline.schedule=zero_bubble_h1"], "device_mapping", "Cut the model into more stages on more IPUs."),
        (
            ["pipeline.device_mapping=[0, 1, 1, 0]"],
            "allow_recompute",
            "Set allow_recompute, or cut the model into more stages on more IPUs.",
        ),
    ],
    ids=["without_recomputation", "several_stages"],
)
def test_no_remedy_is_told_that_the_schedule_refuses(load, changes, key, remedy):
    last = "    - {name: b, forward: 10, backward: 20}\n"
    four = TIMED.replace(last, last + last.replace("b,", "c,") + last.replace("b,", "d,"))
    with pytest.raises(ScenarioMemoryError) as caught:
        load(four, "pipeline.stages.0.stash_bytes=290 MiB", "pipeline.gradient_accumulation_count=8", *changes)
    assert f"pipeline.{key}: Out of memory on IPU 0" in str(caught.value)
    assert f" {remedy} With memory" in str(caught.value)


def test_an_element_counted_from_the_data_is_made_smaller_by_the_micro_batch(load):
    with pytest.raises(ScenarioMemoryError) as caught:
        load(COUNTED)
    assert "scenario.yaml:16:21: pipeline.micro_batch_size: Out of memory on IPU 0: " in str(caught.value)
    assert "Make micro_batch_size smaller, or the samples: a whole element of the infeed" in str(caught.value)
    assert "more stages on" not in str(caught.value)


def test_a_micro_batch_of_one_sample_is_not_made_smaller(load):
    """An element of 512 x 512 x 64 numbers of 8 bytes lies on the first IPU."""
    first = "{name: a, type: layer_norm}"
    pooled = (
        f"{first}\n    - {{name: p, type: average_pool2d, pool_size: [64, 64]}}\n    - {{name: flat, type: flatten}}"
    )
    text = COUNTED.replace(first, pooled).replace("shape: [65536]", "shape: [512, 512, 64]")
    with pytest.raises(ScenarioMemoryError) as caught:
        load(text, "pipeline.micro_batch_size=1")
    assert "scenario.yaml:2:7: data: Out of memory on IPU 0: " in str(caught.value)
    assert "micro_batch_size smaller" not in str(caught.value)
    assert "Make the samples smaller: a whole element of the infeed" in str(caught.value)


def test_what_a_weight_update_loads_is_no_matter_of_the_micro_batch(load):
    with pytest.raises(
        ScenarioMemoryError, match=r"pipeline\.device_mapping: .* in the weight update, .* Cut the model"
    ):
        load(TIMED, "system.enable_remote_buffers=true", "pipeline.stages.0.state_bytes=1 GiB")


def test_streaming_memory_that_is_too_small_is_said_where_it_stands(load):
    changes = ("system.enable_remote_buffers=true", "pipeline.stages.0.state_bytes=100 MiB")
    assert not load(TIMED, *changes).memory.too_large
    with pytest.raises(ScenarioMemoryError, match=r"^--set system.streaming_memory.capacity: Out of Streaming Memory"):
        load(TIMED, *changes, "system.streaming_memory.capacity=1 MiB")


def test_the_capacity_that_is_there_by_default_can_be_written(load):
    changes = ("system.enable_remote_buffers=true", "pipeline.stages.0.state_bytes=100 MiB")
    plain = load(TIMED, *changes).system.streaming
    written = load(TIMED, *changes, f"system.streaming_memory.capacity={plain.capacity_bytes}").system.streaming
    assert written == plain
    assert load(TIMED, *changes, "system.streaming_memory.capacity=256 GB").system.streaming == plain


def test_products_that_take_most_are_to_have_less_room(load):
    """A product may hold up to 0.6 of an IPU's memory for itself while it runs, which half of that brings down."""
    text = """\
system: {name: m2000}
data: {type: synthetic, shape: [768], classes: 8192, samples: 100000}
model:
  layers:
    - {name: a, type: dense, units: 768}
    - {name: b, type: dense, units: 8192}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {splits: [b], micro_batch_size: 6144, gradient_accumulation_count: 4}
optimizer: {type: sgd, learning_rate: 0.1}
precision: float16
numerics: off
code_bytes: 150 MiB
"""
    with pytest.raises(ScenarioMemoryError) as caught:
        load(text)
    assert "Largest: temporary data of matrix products " in str(caught.value)
    assert (
        "Give products less memory, by availableMemoryProportion in system.matmuls.poplar_options or "
        "system.convolutions.poplar_options, or cut the model into more stages on more IPUs."
    ) in str(caught.value)
    fits = load(text, "system.matmuls.poplar_options.availableMemoryProportion=0.3")
    assert not fits.memory.excess_peaks
