"""What people see of the commands: exit codes, printed text and written files of some 60 lines, and notebook objects.

``python -m tests.replay.faces record FILE`` on one commit, ``... compare FILE`` on a later one. The record lies
outside of the checkout. Each line runs at 80 and at 60 columns, in the order of the list, in a folder that begins with
copies of a few scenarios.
"""

import argparse
import difflib
import hashlib
import json
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import ipusim as package
from tests.cli.commands import ipusim
from tests.machine_costs import write_scenarios
from tests.scenarios import SCENARIOS

#: Scenarios that the folder begins with.
COPIED: Final = (
    "schedules_four_ipus.yaml",
    "digits_training.yaml",
    "selection_orders.yaml",
    "memory_by_schedule.yaml",
    "measured_stages.csv",
    "measured_timers.log",
    "measured_trace.json",
    "measured_throughputs.csv",
)
#: Measured cycles of the stages of a scenario, for rates to be fitted to.
STAGES: Final = """\
scenario,stage,forward,backward,update
small.yaml,0,52000,103000,310000
small.yaml,1,13000,25000,0
small.yaml,2,11000,22000,9000
small.yaml,3,60000,121000,320000
"""
WIDTHS: Final = ("80", "60")
#: The seconds that a test of a scenario takes.
_SECONDS: Final = re.compile(r" \d+\.\d s$", re.MULTILINE)
#: Differing lines of text that are shown of each command.
_SHOWN: Final = 12
#: Letters of each, as a page has pictures in its text.
_MOST_LETTERS: Final = 300

LINES: Final = tuple(
    line
    for line in """
check schedules_four_ipus.yaml
check digits_training.yaml --costs
check memory_by_schedule.yaml --memory
check digits_training.yaml --set pipeline.schedule=gpipe --set pipeline.micro_batch_size=16
run schedules_four_ipus.yaml --out four
run schedules_four_ipus.yaml --out json --json
run schedules_four_ipus.yaml --out verbose --verbose
run schedules_four_ipus.yaml --out quiet --quiet --set pipeline.schedule=1f1b --set pipeline.sync=point_to_point
run digits_training.yaml --out digits --set steps=2
run selection_orders.yaml --out orders --set steps=1
compare schedules_four_ipus.yaml --out compared --schedules gpipe,1f1b
compare schedules_four_ipus.yaml --out compared-sync --sync lock_step,point_to_point --schedules 1f1b
compare selection_orders.yaml --out compared-orders --orders ZIGZAG,SNAKE
compare four quiet --out compared-runs --title Two
sweep schedules_four_ipus.yaml --out swept --vary pipeline.gradient_accumulation_count=8..64x2 --workers 1
sweep schedules_four_ipus.yaml --out crossed --vary pipeline.schedule=gpipe,1f1b --vary COUNT=8,16 --workers 1
sweep schedules_four_ipus.yaml --out slower --slower 1.5 --workers 1
sweep schedules_four_ipus.yaml --out seeds --seeds 8 --workers 1 --set "disturbances=[{ipu: 0, jitter: 5 %}]"
suggest schedules_four_ipus.yaml --out suggested.yaml --seconds inf
suggest digits_training.yaml --out digits-suggested.yaml --seconds inf --replicas 1 --ipus 2 --schedules grouped,1f1b
suggest schedules_four_ipus.yaml --order --out ordered --seconds 1000 --set pipeline.gradient_accumulation_count=2
suggest schedules_four_ipus.yaml --order --out proven --seconds 1000 --set COUNT=3 --set pipeline.schedule=1f1b
explain four
explain digits --out explained --json
explain quiet --what pipeline.schedule=gpipe
explain schedules_four_ipus.yaml --stragglers --out stragglers
report four quiet --out report.html
report --play four --out play.html
show missing --perfetto
show four --phase ramp-up
show four --from 0 --to 900000 --out zoomed.svg
show four --out four/spans.csv
show digits --out tables/spans.csv --from 0 --to 100000
schedule
schedule 1f1b --stages 4
schedule gpipe --stages 3 --count 4 --as instructions
schedule interleaved_1f1b --stages 4 --mapping 0,1,0,1 --as torch
schedule grouped --stages 2 --recompute
devices
devices bow_pod16
devices pod16 --figures
test --pin schedules_four_ipus.yaml --workers 1
test schedules_four_ipus.yaml --workers 1
test . --workers 1 --json
test schedules_four_ipus.yaml --workers 1 --update
validate --rows measured_throughputs.csv --out rows
validate --fit stages.csv --rates compute_set_cycles,vector_slowdown --out fitted.yaml
validate --fit measured_stages.csv
check --schema
import measured_trace.json --out traced.yaml
import measured_timers.log --out imported.yaml
run missing.yaml
run schedules_four_ipus.yaml --set pipeline.scheduel=gpipe
run schedules_four_ipus.yaml --set pipeline.schedule=dualpipe --set pipeline.gradient_accumulation_count=3
compare four --sync sideways
sweep schedules_four_ipus.yaml --vary pipeline.gradient_accumulation_count=8..
explain missing
show four --phase rump
schedule nothing
devices pod61
""".replace("COUNT", "pipeline.gradient_accumulation_count").splitlines()
    if line
)


def seen(lines: list[str]) -> dict[str, dict[str, object]]:
    """Return the outcome of each line at each width, and the HTML of notebook objects, by name."""
    outcomes: dict[str, dict[str, object]] = {}
    for columns in WIDTHS:
        with TemporaryDirectory() as place:
            folder = Path(place)
            for name in COPIED:
                shutil.copy(SCENARIOS / name, folder)
            write_scenarios(folder)
            (folder / "stages.csv").write_text(STAGES)
            before = hashes(folder)
            for line in lines:
                done = ipusim(*shlex.split(line), cwd=folder, columns=columns)
                after = hashes(folder)
                outcomes[f"{columns} columns: {line}"] = {
                    "code": done.returncode,
                    "stdout": _SECONDS.sub(" SECONDS", done.stdout.replace(place, "FOLDER")),
                    "stderr": done.stderr.replace(place, "FOLDER"),
                    "files": {name: sha for name, sha in after.items() if before.get(name) != sha},
                }
                before = after
    outcomes |= {f"notebook: {name}": {"html": html} for name, html in notebook_objects()}
    return outcomes


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(_lasting(path)).hexdigest() for path in files}


def _lasting(path: Path) -> bytes:
    """Return the content of a file; of a sweep's journal the outcomes alone, as the rest is a hash of the code."""
    if path.name != "sweep.jsonl":
        return path.read_bytes()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return json.dumps([line["outcome"] for line in lines if "outcome" in line]).encode()


def notebook_objects() -> Iterator[tuple[str, str]]:
    """Yield name and HTML of the objects that a notebook shows."""
    four = SCENARIOS / "schedules_four_ipus.yaml"
    run = package.run(four)
    counts = {"pipeline.gradient_accumulation_count": [8, 16]}
    yield "run", run._repr_html_()
    yield "explanation", run.explain()._repr_html_()
    yield "comparison", package.compare([four, SCENARIOS / "gpu_schedules.yaml"])._repr_html_()
    yield "sweep", package.sweep(four, counts, workers=1)._repr_html_()
    yield "suggestion", package.suggest(four, seconds=float("inf"))._repr_html_()


def differences(record: dict[str, dict[str, object]], now: dict[str, dict[str, object]]) -> Iterator[str]:
    """Yield a line for each difference, for text a few differing lines below it."""
    for name in sorted(record.keys() | now.keys()):
        old, new = record.get(name), now.get(name)
        if old is None or new is None:
            yield f"{name}: {'not in the record' if old is None else 'not shown now'}"
            continue
        for part in old.keys() | new.keys():
            was, is_now = old.get(part), new.get(part)
            if was == is_now:
                continue
            yield f"{name}: {part}"
            if isinstance(was, str) and isinstance(is_now, str):
                diff = [*difflib.unified_diff(was.splitlines(), is_now.splitlines(), lineterm="", n=0)][2:]
                yield from (f"    {line:.{_MOST_LETTERS}}" for line in diff[:_SHOWN])
            elif isinstance(was, dict) and isinstance(is_now, dict):
                names = sorted(key for key in was.keys() | is_now.keys() if was.get(key) != is_now.get(key))
                yield f"    {', '.join(names)}"
            else:
                yield f"    {was} -> {is_now}"


def main(words: list[str]) -> int:
    """Record, or compare and return 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay.faces", description=__doc__)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("file", type=Path, metavar="FILE", help="the record, a .json")
    parser.add_argument("--only", default="", metavar="WORDS", help="lines with these words; earlier ones run too")
    asked = parser.parse_args(words)
    warnings.simplefilter("error")
    if asked.command == "record":
        outcomes = seen(list(LINES))
        asked.file.write_text(json.dumps(outcomes, indent=1))
        print(f"{asked.file}: {len(outcomes)} outcomes")
        return 0
    record = json.loads(asked.file.read_text())
    recorded = [name.partition(": ")[2] for name in record if name.startswith(f"{WIDTHS[0]} ")]
    lines = differences(record, seen(recorded))
    listed = [line for line in lines if asked.only in line or line.startswith(" ")]
    print(*listed, sep="\n")
    print("equal" if not listed else f"{sum(not line.startswith(' ') for line in listed)} differ")
    return int(bool(listed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
