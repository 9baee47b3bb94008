"""Scenarios of the benchmarks."""

from __future__ import annotations


def timed_stages(system: str, stages: int, count: int, memory: bool = True) -> str:
    """Return a scenario of so many stages on as many IPUs, known by their cycles and, of ``memory``, by their bytes."""
    held = ", parameter_bytes: 4 KiB, stash_bytes: 4 KiB" if memory else ""
    lines = (
        f"    - {{name: s{stage}, forward: {1000 + stage % 7}, backward: 2000, update: 100, "
        f"output_bytes: 4 KiB, gradient_bytes: 4 KiB{held}}}\n"
        for stage in range(stages)
    )
    return (
        f"system: {{name: {system}, auto_select_ipus: {stages}}}\n{'memory: report' if memory else ''}\n"
        f"pipeline:\n  schedule: grouped\n  gradient_accumulation_count: {count}\n  stages:\n" + "".join(lines)
    )


def bert_large(length: int = 128) -> str:
    """Return a scenario of BERT-Large's size, all its layers in four stages on four replicas, for time alone."""
    return f"""\
system: {{name: bow_pod16, auto_select_ipus: 16}}
numerics: off
precision: float16
memory: report
data: {{type: synthetic_tokens, length: {length}, vocabulary: 30522, samples: 1000000}}
model:
  layers:
    - {{name: tokens, type: embedding, input_dim: 30522, output_dim: 1024}}
    - {{name: positions, type: position_embedding}}
    - repeat: 24
      layers:
        - name: attention
          type: residual
          layers:
            - {{name: norm, type: layer_norm}}
            - {{name: heads, type: multi_head_attention, num_heads: 16}}
        - name: feedforward
          type: residual
          layers:
            - {{name: norm, type: layer_norm}}
            - {{name: up, type: dense, units: 4096, activation: gelu}}
            - {{name: down, type: dense, units: 1024}}
    - {{name: norm, type: layer_norm}}
    - {{name: scores, type: dense, units: 30522}}
    - {{name: loss, type: softmax_cross_entropy}}
pipeline:
  schedule: grouped
  splits: [attention6, attention12, attention18]
  micro_batch_size: 8
  gradient_accumulation_count: 512
optimizer: {{type: lamb, learning_rate: 0.001}}
"""
