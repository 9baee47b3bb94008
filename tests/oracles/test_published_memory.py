"""Programs that ran are said to fit the memory of their IPUs, and programs that did not fit are refused.

Each row is a published training with its configuration; none of them is in any fit. What a program holds follows from
its layers, its options and its framework alone.
"""

import pytest

from ipusim.analysis.fits import Fits, fits_or_unknown
from ipusim.app.fidelity.throughput_rows import MODELS
from ipusim.app.scenario.load import load_job
from tests.scenarios import job_from

HALF_FIRST = {"first_moment": "float16"}  # enable_half_first_order_momentum
LAMB = {"type": "lamb", "learning_rate": 0.006, "weight_decay": 0.01}
ADAM = {"type": "adam", "learning_rate": 0.00005}
SHARDED = {"replicated_optimizer_state_sharding": True}
OFF_CHIP = SHARDED | {"offload_weight_update_variables": True}


def encoder(count, width, heads, **attention):
    """Return the layers of BERT between its embeddings and its head."""
    drop = {"name": "drop", "type": "dropout", "rate": 0.1}
    attend = {"name": "heads", "type": "multi_head_attention", "num_heads": heads, **attention}
    up = {"name": "up", "type": "dense", "units": 4 * width, "activation": "gelu"}
    down = {"name": "down", "type": "dense", "units": width}
    layers = [
        {"name": "attention", "type": "residual", "layers": [attend, drop]},
        {"name": "attention_norm", "type": "layer_norm"},
        {"name": "feedforward", "type": "residual", "layers": [up, down, drop]},
        {"name": "feedforward_norm", "type": "layer_norm"},
    ]
    return {"repeat": count, "layers": layers}


def embeddings(words, width):
    return [
        {"name": "tokens", "type": "embedding", "input_dim": words, "output_dim": width},
        {"name": "positions", "type": "position_embedding"},
        {"name": "norm", "type": "layer_norm"},
        {"name": "drop", "type": "dropout", "rate": 0.1},
    ]


def pre_training(words, width, masked=76):
    return [
        {"name": "masked", "type": "take_positions", "count": masked},
        {"name": "transform", "type": "dense", "units": width, "activation": "gelu"},
        {"name": "transform_norm", "type": "layer_norm"},
        {"name": "scores", "type": "tied_projection", "units": words, "embedding": "tokens"},
        {"name": "loss", "type": "masked_softmax_cross_entropy", "positions": masked},
    ]


SQUAD = [{"name": "spans", "type": "dense", "units": 2}, {"name": "loss", "type": "softmax_cross_entropy"}]


def program(layers, optimizer, length, words, machine, framework, proportion, splits, **pipeline):
    """Return the Job of a program of replicas in half precision; ``words`` are those of the data."""
    options = {"poplar_options": {"partialsType": "half", "availableMemoryProportion": proportion}}
    system = {"name": machine, "auto_select_ipus": 16, "enable_remote_buffers": True, "matmuls": options}
    return job_from(
        {
            "system": system | {"host": {"framework": framework}},
            "numerics": "off",
            "memory": "report",
            "precision": "float16",
            "data": {"type": "synthetic_tokens", "length": length, "vocabulary": words, "samples": 1000},
            "model": {"layers": layers},
            "pipeline": {"splits": splits, "allow_recompute": True, **pipeline},
            "optimizer": optimizer,
        }
    )


def bert_base_512():
    """BERT-Base at 512 positions: graphcore/examples 2d8b565^, nlp/bert/popart/configs/pretrain_base_512.json."""
    layers = [*embeddings(30400, 768), encoder(12, 768, 12, split_qkv=True), *pre_training(30400, 768)]
    splits = ["attention0", "attention4", "attention8", "masked"]
    sizes = {"device_mapping": [0, 1, 2, 3, 0], "micro_batch_size": 8, "gradient_accumulation_count": 510}
    return program(layers, LAMB, 512, 30400, "bow_pod16", "popart", 0.28, splits, **sizes, **OFF_CHIP)


def mlperf_1_0():
    """BERT-Large of MLPerf v1.0: training_results_v1.0 50619b5d, popart/configs/mk2/pod16-closed.json."""
    layers = [*embeddings(30400, 1024), encoder(24, 1024, 16, split_qkv=True), *pre_training(30400, 1024)]
    splits = ["attention3", "attention10", "attention17", "masked"]
    sizes = {"device_mapping": [0, 1, 2, 3, 0], "micro_batch_size": 2, "gradient_accumulation_count": 190}
    return program(layers, LAMB, 512, 30400, "pod16", "popart", 0.25, splits, **sizes, **OFF_CHIP)


def squad_large(**state):
    """BERT-Large on SQuAD: graphcore/examples 3cc8f81, nlp/bert/pytorch/configs_squad.yml, squad_large_384."""
    layers = [*embeddings(30522, 1024), encoder(24, 1024, 16, dropout=0.1), *SQUAD]
    splits = [f"attention{layer}" for layer in range(2, 21, 3)]
    sizes = {"micro_batch_size": 4, "gradient_accumulation_count": 32, "repeat_count": 2}
    return program(layers, ADAM | HALF_FIRST, 384, 2, "bow_pod16", "pytorch", 0.32, splits, **sizes, **state)


def roberta():
    """RoBERTa-Base on SQuAD: huggingface.co/Graphcore/roberta-base-squad2, ipu_config.json 16bb900."""
    layers = [*embeddings(50265, 768), encoder(12, 768, 12, dropout=0.1), *SQUAD]
    splits = ["attention0", "attention4", "attention8"]
    sizes = {"micro_batch_size": 4, "gradient_accumulation_count": 16}
    return program(layers, ADAM, 384, 2, "pod16", "pytorch", 0.25, splits, **sizes)


@pytest.mark.parametrize("ran", [bert_base_512, mlperf_1_0, lambda: squad_large(**SHARDED), roberta], ids=range(4))
def test_what_ran_fits(ran):
    assert ran().memory.fits is Fits.YES


@pytest.mark.parametrize("length", [128, 512])
def test_one_replica_of_bert_large_fits_with_whole_state_off_chip(length):
    """graphcore/examples 3cc8f81, nlp/bert/pytorch/configs_pretraining.yml: pretrain_large_128_pod4 and 512_pod4.

    An IPU has the state of one variable at a time, of 8 bytes a weight: at most that of the table of words. So it has
    with TensorFlow (graphcore/tensorflow d9e38abd, remote_parameter_parallel_combiner.cc, AddSchedulingConstraints).
    """
    sizes = {128: ("bert_large.yaml", 8), 512: ("bert_large_512.yaml", 2)}
    name, micro_batch = sizes[length]
    changes = ("system.name=bow_pod16", "system.auto_select_ipus=4", f"pipeline.micro_batch_size={micro_batch}")
    for framework in ("pytorch", "tensorflow2"):
        wide = ("optimizer.first_moment=float32", "optimizer.second_moment=float32")
        job = load_job(MODELS / name, (*changes, *wide, f"system.host.framework={framework}", "memory=report"))
        assert job.memory.fits is Fits.YES
        loaded = [job.program.offload.loaded_state_bytes(stage) for stage in job.program.stages]
        assert loaded[:2] == [8 * 30400 * 1024, 8 * 4096 * 1024]


def test_fine_tuning_whose_state_is_not_sharded_does_not_fit():
    """Its configuration says that sharding makes the state fit on chip, with two replicas at least."""
    assert squad_large().memory.fits is Fits.NO


@pytest.mark.parametrize("first", [0, 3])
def test_gpt2_medium_with_its_state_on_four_ipus_does_not_fit(first):
    """Graphcore trains it on eight (graphcore/examples 3cc8f81, nlp/gpt2/pytorch/run/pretraining_medium.sh)."""
    rest = (24 - first) // 3
    splits = ", ".join(f"attention{first + number * rest}" for number in range(3))
    block = "model.layers.3.layers"
    changes = (
        *("model.layers.tokens.output_dim=1024", "model.layers.3.repeat=24"),
        *(f"{block}.attention.layers.heads.num_heads=16", f"{block}.feedforward.layers.up.units=4096"),
        *(f"{block}.feedforward.layers.down.units=1024", f"pipeline.splits=[{splits}, norm]"),
        *("pipeline.offload_weight_update_variables=null", "memory=report"),
    )
    assert load_job(MODELS / "gpt2.yaml", changes).memory.fits is Fits.NO


def test_training_u_net_does_not_fit_one_ipu():
    """Its README asks for four (graphcore/examples 3cc8f81, vision/unet_medical/tensorflow2)."""
    none = (f"pipeline.{way}_propagation_stages_poplar_options=null" for way in ("forward", "backward"))
    changes = ("pipeline.schedule=single", "pipeline.splits=[]", "system.auto_select_ipus=1", "memory=report", *none)
    assert not fits_or_unknown(load_job(MODELS / "unet.yaml", changes).memory.fits)
