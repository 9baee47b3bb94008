"""How long the best plan takes to find: BERT-Large on a Bow Pod16, proven."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.places import ROOT


def test_the_best_plan_for_bert_large_on_16_ipus_is_proven_within_a_minute():
    command = [sys.executable, "-m", "ipusim", "suggest", str(ROOT / "scenarios" / "bert_large.yaml")]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took = time.perf_counter() - start
    print(f"\nipusim suggest bert_large: {took:.1f} s")
    assert "Proven: " in done.stdout
    assert "times as fast as the given plan" in done.stdout
    assert took < 60
