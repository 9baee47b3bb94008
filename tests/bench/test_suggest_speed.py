"""How long the best plan takes to find: BERT-Large on a Bow Pod16, proven; a transformer that hardly fits, nearly."""

from __future__ import annotations

import re
import subprocess
import sys
import time

from tests.scenarios import ROOT


def suggested(scenario, *words):
    """Return what the command prints of a scenario, and the seconds that it takes."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "ipusim", "suggest", *map(str, (scenario, *words))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return " ".join(done.stdout.split()), time.perf_counter() - start


def test_the_best_plan_for_bert_large_on_16_ipus_is_proven_within_a_minute():
    printed, took = suggested(ROOT / "scenarios" / "bert_large.yaml")
    print(f"\nipusim suggest bert_large: {took:.1f} s")
    assert "Proven by lower bounds" in printed
    assert "times as fast as the given plan" in printed
    assert took < 60


TRANSFORMER = """\
system: {name: pod16, auto_select_ipus: 8}
data: {type: synthetic_tokens, length: 256, vocabulary: 16384, samples: 1000000}
model:
  layers:
    - {name: tokens, type: embedding, input_dim: 16384, output_dim: 768}
    - {name: positions, type: position_embedding}
    - repeat: 24
      layers:
        - name: attention
          type: residual
          layers:
            - {name: norm, type: layer_norm}
            - {name: heads, type: multi_head_attention, num_heads: 12, causal: true}
        - name: feedforward
          type: residual
          layers:
            - {name: norm, type: layer_norm}
            - {name: up, type: dense, units: 3072, activation: gelu}
            - {name: down, type: dense, units: 768}
    - {name: norm, type: layer_norm}
    - {name: logits, type: dense, units: 16384}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  schedule: grouped
  splits: [attention3, attention6, attention9, attention12, attention15, attention18, attention21]
  allow_recompute: true
  micro_batch_size: 4
  gradient_accumulation_count: 64
optimizer: {type: adam, learning_rate: 0.001}
precision: float16
numerics: off
"""


def test_a_transformer_that_hardly_fits_has_a_plan_in_20_seconds_and_one_within_5_percent_in_60(tmp_path):
    scenario = tmp_path / "transformer.yaml"
    scenario.write_text(TRANSFORMER)
    for seconds, share in ((20, 100.0), (60, 5.0)):
        printed, took = suggested(scenario, "--replicas", 1, "--seconds", seconds)
        gap = re.search(r"another plan could take ([0-9.]+)% less time at most", printed)
        print(f"\nipusim suggest transformer --seconds {seconds}: {took:.1f} s, {gap[0] if gap else 'proven'}")
        assert gap is None or float(gap[1]) <= share
        assert took < seconds + 3
