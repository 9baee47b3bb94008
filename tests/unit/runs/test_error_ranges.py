"""Kinds of trainings: frozen weights count as much as those that learn."""

import pytest

from ipusim.app.fidelity.throughput_rows import MODELS
from ipusim.app.scenario import load_job
from ipusim.runs.error_ranges import error_words, kind_of
from tests.scenarios import SCENARIOS

BLOCKS = [f"4.layers.{name}" for name in ("attention", "attention_norm", "feedforward", "feedforward_norm")]
FROZEN_BERT = tuple(f"model.layers.{name}.trainable=false" for name in ("tokens", *BLOCKS))


@pytest.mark.parametrize("frozen", [(), FROZEN_BERT], ids=["nothing", "embedding and encoder"])
def test_a_large_model_stays_large_with_most_of_its_weights_frozen(frozen):
    """Beside its head of two units, 1,538 weights, BERT-Base has some 120 M."""
    job = load_job(MODELS / "squad_base.yaml", (*frozen, "memory=report"))
    learning = sum(stage.parameter_bytes for stage in job.program.stages)
    assert (learning < 10**6) == bool(frozen)
    assert kind_of(job) == "BERT, fine-tuning"


def test_a_small_network_stays_small_with_a_frozen_layer():
    job = load_job(SCENARIOS / "mnist_cnn.yaml", ["model.layers.0.trainable=false"])
    assert sum(stage.untrained_bytes for stage in job.program.stages)
    assert kind_of(job) == "small networks"


def test_a_range_names_the_models_and_runs_of_its_trainings():
    """Groups of convolutions are no model: the networks that have them are."""
    words = [error_words(load_job(MODELS / f"{name}.yaml")) for name in ("squad_base", "resnext101", "unet")]
    assert words[0].endswith(" (estimated from 6 published fine-tunings of BERT)")
    assert words[1].endswith(" (estimated from 6 published trainings of networks with grouped convolutions)")
    assert words[2] == "not known: only 1 published training of this kind (U-Nets)"
