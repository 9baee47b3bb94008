"""Rows as a person would measure them on a machine of known rates: what is simulated by these, with noise."""

from __future__ import annotations

import random
from functools import lru_cache

from ipusim.app.fidelity.throughput_rows import read_throughputs
from ipusim.app.fidelity.throughputs import prepare_rows, simulate_rows
from ipusim.app.scenario import load_job
from ipusim.pricing.passes import pass_cycles

#: Products, functions and norms of a size at which each rate of computation is felt.
MODEL = """\
system: {name: m2000}
numerics: off
precision: float16
data: {type: synthetic_targets, shape: [2048], target_shape: [2048], samples: 100000}
model:
  layers:
    - {name: wide, type: dense, units: 4096}
    - {name: bend, type: activation, activation: tanh}
    - {name: norm, type: layer_norm}
    - {name: narrow, type: dense, units: 2048, activation: relu}
    - {name: loss, type: mean_squared_error}
pipeline: {splits: [bend, norm, narrow], micro_batch_size: 256, gradient_accumulation_count: 8}
optimizer: {type: sgd, learning_rate: 0.1}
"""


def write_scenarios(folder):
    """Write two scenarios of different sizes; return their names."""
    (folder / "large.yaml").write_text(MODEL)
    (folder / "small.yaml").write_text(MODEL.replace("micro_batch_size: 256", "micro_batch_size: 16"))
    return ("large.yaml", "small.yaml")


def stage_rows(folder, names, rates, noise=0.0, seed=0):
    """Return CSV of the cycles of all stages of scenarios, by ``rates`` instead of theirs."""
    draw = random.Random(seed)
    lines = ["scenario,stage,forward,backward,update"]
    for name in names:
        job = _job(folder / name, (folder / name).read_text())
        for number, stage in enumerate(job.program.stages):
            passes = (
                pass_cycles(cost, job.system.ipu, rates) for cost in (stage.forward, stage.backward, stage.update)
            )
            cells = [round(cycles * (1 + draw.gauss(0, noise))) for cycles in passes]
            lines.append(f"{name},{number},{','.join(map(str, cells))}")
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=8)
def _job(path, text):
    """Return the Job of a scenario; rows are made of the same ones again and again."""
    return load_job(path)


def throughput_rows(path, rows, rates, noise=0.0, seed=0):
    """Write throughputs into ``path``, of rows that have all but the last column, by ``rates``."""
    draw = random.Random(seed)
    header = "model,machine,ipus,micro_batch,count,framework,items_per_s\n"
    path.write_text(header + "".join(f"{row},1\n" for row in rows))
    simulated = simulate_rows(prepare_rows(read_throughputs(path)), rates)
    found = [each.items_per_s * (1 + draw.gauss(0, noise)) for each in simulated]
    path.write_text(header + "".join(f"{row},{value:.6g}\n" for row, value in zip(rows, found, strict=True)))
