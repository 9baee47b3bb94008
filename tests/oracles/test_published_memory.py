"""Programs that ran are said to fit the memory of their IPUs, and programs that did not fit are refused.

Each is a published training, of which the file of its model tells the configuration. What a program holds follows from
its layers, its options and its framework alone.
"""

import pytest

from ipusim.analysis.fits import Fits, fits_or_unknown
from ipusim.app.fidelity.throughput_rows import MODELS
from ipusim.app.scenario.load import load_job

#: BERT-Base at 512 positions: graphcore/examples 2d8b565^, nlp/bert/popart/configs/pretrain_base_512.json.
BASE_512 = (
    *("system.name=bow_pod16", "system.matmuls.poplar_options.availableMemoryProportion=0.28"),
    *("model.layers.tokens.output_dim=768", "model.layers.4.repeat=12", "model.layers.transform.units=768"),
    *(
        f"model.layers.4.layers.{name}={size}"
        for name, size in (
            ("attention.layers.heads.num_heads", 12),
            ("attention.layers.heads.padding_mask", "false"),
            ("feedforward.layers.up.units", 3072),
            ("feedforward.layers.down.units", 768),
        )
    ),
    *("pipeline.splits=[attention0, attention4, attention8, masked]", "pipeline.micro_batch_size=8"),
    *("pipeline.gradient_accumulation_count=510", "pipeline.recomputation_checkpoints=null"),
)
#: Each replica has the whole state.
WHOLE = ("pipeline.replicated_optimizer_state_sharding=false",)


def fits(name, *changes):
    return load_job(MODELS / f"{name}.yaml", ("memory=report", *changes)).memory.fits


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bert_large_512", BASE_512),
        ("bert_large_512", ("pipeline.gradient_accumulation_count=190",)),
        ("squad_large", ()),
        ("squad_base", (*WHOLE, "optimizer.first_moment=float32")),
    ],
    ids=["BERT-Base", "BERT-Large", "SQuAD", "RoBERTa-Base"],
)
def test_what_ran_fits(name, changes):
    assert fits(name, *changes) is Fits.YES


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
    assert fits("squad_large", *WHOLE) is Fits.NO


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
        "pipeline.offload_weight_update_variables=null",
    )
    assert fits("gpt2", *changes) is Fits.NO


def test_training_u_net_does_not_fit_one_ipu():
    """Its README asks for four (graphcore/examples 3cc8f81, vision/unet_medical/tensorflow2)."""
    none = (f"pipeline.{way}_propagation_stages_poplar_options=null" for way in ("forward", "backward"))
    changes = ("pipeline.schedule=single", "pipeline.splits=[]", "system.auto_select_ipus=1", *none)
    assert not fits_or_unknown(fits("unet", *changes))
