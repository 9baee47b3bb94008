"""What a value that is none of those expected was likely meant to be."""

import pytest

import ipusim
from ipusim.app.scenario import ScenarioError, load_request
from tests.scenarios import SCENARIOS


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("optimizer.learning_rate='0,01'", "got '0,01'; did you mean 0.01?"),
        ("optimizer.learning_rate='0.01'", "got '0.01'; did you mean 0.01, without quotes?"),
        ("optimizer.learning_rate=1 %", "got '1 %'; did you mean 0.01?"),
        ("optimizer.learning_rate=2,5%", "got '2,5%'; did you mean 0.025?"),
        ("optimizer.learning_rate=much", "got 'much'"),
        ("steps='10'", "got '10'; did you mean 10, without quotes?"),
        ("steps='1,024'", "got '1,024'; did you mean 1024?"),
        ("steps=10.0", "got 10.0; did you mean 10?"),
        ("steps=10.5", "got 10.5"),
        ("system.clock='1,3 GHz'", "got '1,3 GHz'; did you mean 1.3 GHz?"),
        ("code_bytes='1,024 KiB'", "got '1,024 KiB'; did you mean 1.024 KiB or 1024 KiB?"),
        ("code_bytes='5 %'", "got '5 %'"),
        ("use_synthetic_data=yes", "got 'yes'; did you mean true?"),
        ("use_synthetic_data=Off", "got 'Off'; did you mean false?"),
        ("use_synthetic_data=maybe", "got 'maybe'"),
        ("data.shape=28", "got 28; did you mean [28]?"),
        ("data.shape='28, 28'", "got '28, 28'; did you mean [28, 28]?"),
        ("data.shape=28x28", "got '28x28'; did you mean [28, 28]?"),
        ("data.shape=28 pixels", "got '28 pixels'"),
        ("system.auto_select_ipus=2 IPUs", "got '2 IPUs'; did you mean 2?"),
        ("pipeline.gradient_accumulation_count=4x4", "got '4x4'"),
        ("steps=[10]", "got [10]; did you mean 10?"),
        ("steps=[10, 20]", "got [10, 20]"),
        ("pipeline.stages.0=flatten", "got 'flatten'; did you mean [flatten]?"),
        ("pipeline.splits='dense64, logits'", "got 'dense64, logits'; did you mean [dense64, logits]?"),
        (
            "pipeline.splits=d.csv",
            "did you mean stages: d.csv (the stages), cycles: d.csv (measured cycles of each stage) or schedule: d.csv "
            "(order of the passes)?",
        ),
        ("pipeline.stages=d.xls", "got 'd.xls'"),
    ],
)
def test_a_value_of_another_kind_is_told_what_it_may_mean_and_nothing_where_it_means_nothing(override, hint):
    with pytest.raises(ScenarioError) as caught:
        load_request(SCENARIOS / "tutorial_step3_pipelining.yaml", [override])
    (line,) = str(caught.value).splitlines()
    assert hint in line
    assert ("did you mean" in line) == ("did you mean" in hint)


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("pipeline.lerning_rate=1", "got 'lerning_rate'; did you mean optimizer.learning_rate? Expected one of"),
        ("micro_batch_sise=1", "got 'micro_batch_sise'; did you mean pipeline.micro_batch_size? Expected one of"),
        ("pipeline.stpes=1", "got 'stpes'; did you mean steps at the top? Expected one of"),
        ("gradient_count=1", "got 'gradient_count'; did you mean pipeline.gradient_accumulation_count? Expected one"),
        ("pipeline.count=1", "got 'count'; did you mean repeat_count or gradient_accumulation_count? Expected one"),
        (
            "pipeline.accumulation_steps=4",
            "got 'accumulation_steps'; did you mean gradient_accumulation_count? Expected",
        ),
        ("schedule=1f1b", "got 'schedule'; did you mean pipeline.schedule? Expected one of the keys name, "),
        ("lr=0.1", "got 'lr'; did you mean optimizer.learning_rate? Expected one of the keys name, "),
        (
            "optimizer.beta1=0.9",
            "expected one of the keys learning_rate, map_gradient, type, got 'beta1'; did you mean beta_1 of type "
            "adam or lamb?",
        ),
        (
            "model.layers.1.p=0.9",
            "got 'p'; did you mean rate of type dropout? Expected one of the keys name, trainable, type, units, ",
        ),
    ],
)
def test_a_key_with_a_mistake_in_another_section_or_in_other_words_is_told_as_it_is_here(override, hint):
    with pytest.raises(ScenarioError) as caught:
        load_request(SCENARIOS / "tutorial_step3_pipelining.yaml", [override])
    assert str(caught.value).startswith(f"--set {override.partition('=')[0]}: {hint}")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("asked", "got"), [(["a.yaml"], "['a.yaml']"), (None, "nothing"), (3, "3")])
def test_what_is_no_scenario_is_refused_by_what_it_is(asked, got, refused):
    text = f"expected a scenario as a path, a mapping of options, a Request or a Job, got {got}"
    refused(ipusim.RequestError, text, lambda: ipusim.run(asked))
