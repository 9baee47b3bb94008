"""Run folders with what a page reads alone: pictures and trace files take longer than all the rest."""

import io

from ipusim.analysis.memory import memory_curves
from ipusim.app.run_folder.memory_file import memory_file
from ipusim.app.scenario.write import scenario_text
from ipusim.app.study.result import json_bytes
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request


def run_into(folder, options):
    """Run a scenario's options and write what the page reads of a run; return the Timeline."""
    result = execute(assemble(Request.from_dict(options)))
    timeline, footprint = result.timeline, result.memory.footprint
    saved = io.BytesIO()
    timeline.save(saved)
    curves = [each for replica in range(timeline.info.replicas) for each in memory_curves(timeline, footprint, replica)]
    files = {
        "summary.json": json_bytes(result.summary.to_dict()),
        "timeline.npz": saved.getvalue(),
        "memory.npz": memory_file(curves),
        "memory.png": b"",  # which says that the stages say what they hold
        "scenario.yaml": scenario_text(result.job.request, folder, ["Written by a test."]).encode(),
    }
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return timeline


def four(forward, backward, *, step=0, moved=4096, **more):
    """Return the options of a run of four stages, of which each takes ``step`` cycles more than the one before."""
    held = {"gradient_bytes": moved, "parameter_bytes": 2**20, "stash_bytes": 2**16, **more}
    stages = [
        {"name": f"s{n}", "forward": forward + step * n, "backward": backward, "output_bytes": moved, **held}
        for n in range(4)
    ]
    pipeline = {"stages": stages, "gradient_accumulation_count": 8}
    return {"name": "four", "system": {"name": "m2000"}, "pipeline": pipeline}


def asked(options, **pipeline):
    """Return the options of a run with others of its pipeline."""
    return options | {"pipeline": options["pipeline"] | pipeline}
