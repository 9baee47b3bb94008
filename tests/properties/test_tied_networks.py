"""Random language models whose head is their embedding's table, in stages on one IPU or not, against a plain loop.

The loop has one table, knows no stages, and takes its gradients of the formulas by autograd: a table of which one use
is forgotten, taken twice, mapped or averaged by itself learns something else.
"""

import autograd.numpy as anp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests import formulas
from tests.properties.test_option_combinations import check_learning
from tests.scenarios import job_from

LENGTH, WORDS, WIDTH, TAKEN, BATCH, RATE = 4, 5, 3, 2, 2, 0.1
ORDERS = {"grouped": 2, "sequential": 1, "sharded": 1, "single": 1, "gpipe": 1}


@st.composite
def scenarios(draw):
    """A table at both ends, layers with weights between them, and cuts anywhere among these."""
    layers = [
        {"name": "tokens", "type": "embedding", "input_dim": WORDS, "output_dim": WIDTH},
        {"name": "hidden", "type": "dense", "units": WIDTH, "activation": "tanh"},
        {"name": "again", "type": "dense", "units": WIDTH, "activation": "tanh"},
        {"name": "take", "type": "take_positions", "count": TAKEN},
        {"name": "head", "type": "tied_projection", "embedding": "tokens", "units": WORDS},
        {"name": "cel", "type": "masked_softmax_cross_entropy", "positions": TAKEN},
    ]
    if draw(st.booleans()):
        layers[3:3] = [{"name": "sum", "type": "add", "from": "tokens"}]
    if draw(st.booleans()):
        layers[-2]["use_bias"] = False
    names = [layer["name"] for layer in layers]
    splits = sorted(draw(st.sets(st.sampled_from(names[1:]), max_size=3)), key=names.index)
    stages = len(splits) + 1
    schedule = draw(st.sampled_from(sorted(ORDERS))) if splits else "single"
    head = sum(names.index(cut) <= names.index("head") for cut in splits)
    mapping = [0 if schedule == "single" or at == head else at for at in range(stages)]
    used = sorted(set(mapping))
    pipeline = {
        "schedule": schedule,
        "splits": splits,
        "device_mapping": [used.index(ipu) for ipu in mapping],
        "micro_batch_size": BATCH,
        "gradient_accumulation_count": ORDERS[schedule] * (stages if ORDERS[schedule] > 1 else 1) * 2,
        "repeat_count": 2,
        "reduction_method": draw(st.sampled_from(["SUM", "MEAN", "RUNNING_MEAN"])),
        "allow_recompute": draw(st.booleans()),
    }
    if "sum" not in names:
        some = st.lists(st.sampled_from(names[:-1]), max_size=2, unique=True)
        pipeline["recomputation_checkpoints"] = draw(st.none() | some)
        pipeline["recomputation_mode"] = draw(st.sampled_from(["Auto", "RecomputeAndBackpropagateInterleaved"]))
    shards = 1 << max(pipeline["device_mapping"]).bit_length()
    return {
        "system": {"name": "bow_pod16", "auto_select_ipus": shards * draw(st.sampled_from([1, 2, 4]))},
        "data": {"type": "synthetic_tokens", "length": LENGTH, "vocabulary": WORDS, "samples": 17},
        "model": {"layers": layers},
        "pipeline": pipeline,
        "optimizer": {
            **draw(st.sampled_from([{"type": "sgd"}, {"type": "momentum", "momentum": 0.9}])),
            "learning_rate": RATE,
            "map_gradient": draw(st.sampled_from([None, {"clip_by_norm": 0.1}, {"decay": 0.1}])),
        },
        "precision": "float64",
        "outfeed": {"mode": "ALL"},
        "seed": draw(st.integers(0, 9)),
        "steps": 1,
    }


def losses_of(weights, scenario, x, y, elements):
    """Return means over the first positions of -log softmax of the scores, each a product with a row of the table."""
    table = weights["tokens/W"][:, None]
    h = given_ = anp.matmul(np.eye(WORDS)[x], table)
    for name in ("hidden", "again"):
        h = anp.tanh(formulas.dense(h, weights[f"{name}/W"], weights[f"{name}/b"]))
    if any(layer["name"] == "sum" for layer in scenario["model"]["layers"]):
        h = h + given_
    scores = anp.matmul(h[:, :, :TAKEN], anp.swapaxes(table, -1, -2))
    if "head/b" in weights:
        scores = scores + weights["head/b"][:, None, None]
    return anp.mean(formulas.cross_entropy(scores, y[:, :, :TAKEN]), axis=-1)


@given(scenarios())
def test_a_table_at_both_ends_learns_what_the_formulas_do(scenario):
    job = job_from(scenario)
    workload, initial = job.workload(0), {}
    for stage in range(len(workload.stages)):
        for name, array in workload.initial_parameters(stage).items():
            np.testing.assert_array_equal(array, initial.setdefault(name, array))
    assert "head/W" not in initial
    check_learning(scenario, job, losses_of)
