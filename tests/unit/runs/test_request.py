"""A Request: compared by what it asks for, varied by name, titled, refused in words that know no file."""

import pickle
from typing import Annotated, get_args

import pytest
from pydantic import BaseModel, TypeAdapter

from ipusim.base.errors import CountError, OutOfMemoryError
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError
from ipusim.runs.request.kinds import OneOfKinds
from ipusim.runs.request.request import Request
from ipusim.runs.request.schema import Options
from ipusim.runs.titles import title_of
from tests.scenarios import timed

TIMED = timed(4)


def test_requests_for_the_same_are_equal_and_none_of_their_options_can_be_changed():
    one, other = Request.from_dict(TIMED), Request.from_dict(TIMED)
    assert one == other
    assert one != one.replace({"steps": 2})
    with pytest.raises(ValueError, match="frozen"):
        one.options.steps = 3


def test_a_request_goes_to_another_process_with_times_as_they_were_written():
    request = Request.from_dict(TIMED).replace({"pipeline.stages.0.forward": "10 us"})
    copy = pickle.loads(pickle.dumps(request))
    assert (copy, copy.to_dict()) == (request, request.to_dict())
    assert copy.options.pipeline.stages[0].forward.text == "10 us"


def test_an_option_is_varied_by_its_name_and_all_else_stays():
    request = Request.from_dict(TIMED)
    varied = request.replace({"pipeline.schedule": "interleaved", "pipeline.stages.2.forward": 5000})
    assert (request.options.pipeline.schedule, varied.options.pipeline.schedule) == ("grouped", "interleaved")
    assert [stage.forward for stage in varied.options.pipeline.stages] == [1000, 1000, 5000, 1000]
    assert varied.replace({"pipeline.schedule": "grouped", "pipeline.stages.2.forward": 1000}).options == (
        request.replace({"pipeline.schedule": "grouped"}).options
    )


def test_a_time_comes_to_other_cycles_with_another_clock_or_machine():
    request = Request.from_dict(TIMED).replace({"pipeline.stages.0.forward": "1.2 ms"})
    for changes, cycles in (
        ({}, 1_596_000),
        ({"system.clock": "1 GHz"}, 1_200_000),
        ({"system.name": "c2_server"}, 1_920_000),
    ):
        stages = request.replace(changes).options.pipeline.stages
        assert [stage.forward for stage in stages] == [cycles, 1000, 1000, 1000]
        assert assemble(request.replace(changes)).program.stages[0].forward == cycles
    twice = request.replace({"system.clock": "1 GHz"}).replace({"system.clock": "1.33 GHz"})
    assert (twice.options.pipeline, hash(twice.options.pipeline)) == (
        request.options.pipeline,
        hash(request.options.pipeline),
    )


def test_a_quantity_that_is_no_whole_number_stays_exact():
    request = Request.from_dict(TIMED | {"rates": {"hop_latency": "20.5 ns", "link": "100 Gbit/s"}})
    for changed in (request.replace({}), request.replace({"steps": 1}).replace({"steps": 2}).replace({"steps": 1})):
        assert changed.options.rates == request.options.rates
    assert request.replace({}) == request


def test_options_that_python_calls_otherwise_keep_their_names():
    skip = [{"name": "d", "type": "dense", "units": 8}, {"name": "e", "type": "dense", "units": 8}]
    layers = [*skip, {"name": "s", "type": "add", "from": "d"}, {"name": "m", "type": "mean_squared_error"}]
    learning = {"type": "sgd", "learning_rate": 0.1, "map_gradient": {"decay": 0.5}}
    request = Request.from_dict(
        {
            "system": {"name": "m2000"},
            "data": {"type": "synthetic_targets", "shape": [8], "target_shape": [8], "samples": 64},
            "model": {"layers": layers},
            "pipeline": {"splits": ["e"], "gradient_accumulation_count": 4},
            "optimizer": learning,
        }
    )
    assert request.replace({}) == request
    varied = request.replace({"model.layers.2.from": "e", "optimizer.map_gradient.decay": 0.25})
    assert varied.options.model.layers[2].source == "e"
    assert assemble(varied).workload(0).optimizer.gradient_map.decay == 0.25
    assert request.is_set(("model", "layers", 2, "from"))
    assert request.is_set(("optimizer", "map_gradient", "decay"))
    assert not request.is_set(("optimizer", "map_gradient", "clip_by_norm"))


def test_what_was_given_is_told_from_what_is_by_default():
    request = Request.from_dict(TIMED)
    assert request.is_set(("pipeline", "stages", 3, "forward"))
    assert not request.is_set(("pipeline", "stages", 4))
    assert not request.is_set(("pipeline", "stages", 3, "stash_bytes"))
    assert not request.is_set(("pipeline", "schedule"))
    assert not request.is_set(("system", "host", "infeed"))
    assert request.replace({"system.host.infeed": "1 GB/s"}).is_set(("system", "host", "infeed"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"pipeline.scedule": "grouped"},
            "pipeline.scedule: got 'scedule'; did you mean schedule? Expected one of the keys ",
        ),
        ({"pipeline.schedule": "groupd"}, "got 'groupd'; did you mean grouped?"),
        (
            {"pipeline.stages.4.forward": 1},
            "pipeline.stages.4: expected an index of pipeline.stages from 0 to 3, got 4",
        ),
        ({"steps.x": 1}, "steps: expected a mapping or a list here, got 1"),
    ],
)
def test_a_change_that_is_no_option_is_refused_by_its_name(changes, text):
    with pytest.raises(RequestError) as caught:
        Request.from_dict({**TIMED, "steps": 1}).replace(changes)
    assert text in str(caught.value)


def test_problems_name_the_option_and_keep_what_their_rule_raised():
    with pytest.raises(RequestError) as caught:
        assemble(Request.from_dict(TIMED).replace({"pipeline.gradient_accumulation_count": 7}))
    (problem,) = caught.value.problems
    assert problem.path == ("pipeline", "gradient_accumulation_count")
    assert isinstance(problem.error, CountError)
    assert str(caught.value).startswith("pipeline.gradient_accumulation_count: The number of iterations")


def test_a_program_that_does_not_fit_says_so_of_the_option_to_change_and_keeps_its_job():
    with pytest.raises(RequestError, match=r"^pipeline\.device_mapping: Out of memory") as caught:
        assemble(Request.from_dict(TIMED).replace({"pipeline.stages.0.parameter_bytes": "1 GiB"}))
    assert isinstance(caught.value, OutOfMemoryError)
    assert caught.value.job.memory.too_large


def specs(kind, found):
    """Return the models that a type is made of, with their own."""
    if isinstance(kind, OneOfKinds):
        for made in kind.kinds().values():
            specs(made(), found)
    elif not isinstance(kind, type) or not issubclass(kind, BaseModel):
        for part in get_args(kind):
            specs(part, found)
    elif kind not in found:
        found.add(kind)
        for field in kind.model_fields.values():
            for part in (field.annotation, *field.metadata):
                specs(part, found)
    return found


def test_null_is_as_good_as_leaving_a_key_out_where_there_is_a_default():
    for spec in specs(Options, set()):
        for name, field in spec.model_fields.items():
            if not field.is_required() and field.default is None:
                read = TypeAdapter(
                    Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
                )
                assert read.validate_python(None) is None, (spec, name)
    unsaid = Request.from_dict(TIMED).replace({"pipeline.sync": None, "system.host": {"framework": None}})
    assert assemble(unsaid).plan == assemble(Request.from_dict(TIMED)).plan


@pytest.mark.parametrize(
    ("description", "title"),
    [
        ("", ""),
        ("Real data: a classifier of digits. It reaches 95 %.", "Real data: a classifier of digits"),
        ("One sentence", "One sentence"),
        ("Products, e.g. of layers, and v1.2 of it. Timing only", "Products, e.g. of layers, and v1.2 of it"),
        ("Why is it slow? The host.", "Why is it slow?"),
        ("A model by its layers: " + "and what it is run on, " * 9 + "and so on. More", "A model by its layers"),
        ("A bell\x07 and\ta tab. More", "A bell and a tab"),
    ],
)
def test_the_title_is_the_first_sentence(description, title):
    assert title_of(description) == title


def test_a_long_sentence_is_shortened_at_a_word():
    found = title_of("word " * 100)
    assert len(found) <= 160
    assert found.endswith("word…")
