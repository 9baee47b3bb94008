"""What the scenarios that train come to, to the last bit of every loss: ``losses.json``, for each kind of machine.

``python -m tests.golden.losses`` runs them and writes this machine's part again, or adds it.
"""

import json
from hashlib import sha256
from typing import Any

import numpy as np

from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from ipusim.runs.run import Run
from tests.replay.record import machine
from tests.scenarios import GOLDEN, SCENARIOS

FILE = GOLDEN / "losses.json"


def losses_of(run: Run) -> dict[str, Any] | None:
    """Return a hash of all losses of a run, and each step's mean to the last bit; None where nothing is learned."""
    if run.learning is None or not run.learning.losses:
        return None
    losses = np.array([each.loss for each in run.learning.losses], "<f8")
    return {
        "count": len(losses),
        "sha256": sha256(losses.tobytes()).hexdigest(),
        "mean_by_step": [float(mean).hex() for mean in run.learning.mean_loss_by_step.values()],
    }


def read() -> list[dict[str, Any]]:
    """Return what there is: of each kind of machine what it is, and the losses of each scenario by its name."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
    return found


def main() -> None:
    """Write the losses of this machine beside those of others."""
    runs = {path.stem: losses_of(execute(load_job(path))) for path in sorted(SCENARIOS.glob("*.yaml"))}
    own = {"machine": machine(), "scenarios": {name: losses for name, losses in runs.items() if losses}}
    others = [each for each in read() if each["machine"] != own["machine"]] if FILE.exists() else []
    FILE.write_text(json.dumps([*others, own], indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
