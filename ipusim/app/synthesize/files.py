"""The files of a synthesis: the Order as words and as torch's CSV, a scenario that runs it, and a picture beside."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ipusim.api import Request, schedules
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import COMPARISON_FILES, comparison_files
from ipusim.app.run_folder.output_file import mark_of
from ipusim.app.scenario.write import SCENARIO_FILE, scenario_text
from ipusim.app.synthesize.starts import NAME
from ipusim.app.synthesize.synthesis import Synthesis
from ipusim.base.errors import OutputError
from ipusim.base.units import format_seconds

WORDS_FILE: Final = f"{NAME}.py"
TORCH_FILE: Final = f"{NAME}.csv"
#: Every file that a synthesis may write.
SYNTHESIS_FILES: Final = (WORDS_FILE, TORCH_FILE, SCENARIO_FILE, *COMPARISON_FILES)
#: Letters of a line.
_WIDTH: Final = 116


def synthesis_files(synthesis: Synthesis, request: Request, folder: Path) -> dict[str, bytes]:
    """Return the files of a synthesis by name, as they are to stand in ``folder``.

    Where no Order is better than the best named schedule, the scenario runs that. Raises OutputError for a request that
    no scenario asks for.
    """
    run = synthesis.best.result
    assert run is not None, "of a row that ran"
    words = Path(os.path.relpath(folder, request.folder)) / WORDS_FILE
    schedule = f"{words}:{NAME}" if synthesis.made else synthesis.best.schedule
    changes = {"pipeline.schedule": schedule, "pipeline.sync": synthesis.best.sync.value}
    text = scenario_text(request.replace(changes), folder.absolute(), [mark_of("suggest --order")])
    if text is None:
        raise OutputError(f"{folder}: expected stages that a scenario can say, got Python functions of a program")
    files = {SCENARIO_FILE: text.encode()}
    if synthesis.made:
        files[WORDS_FILE] = words_file(synthesis).encode()
        made = schedules.in_words(NAME, synthesis.words)
        shape = replace(run.job.program.shape, micro_batches=synthesis.torch_count)
        files[TORCH_FILE] = schedules.write_torch_csv(made.laid_out(shape)).encode()
        files |= comparison_files(Comparison((synthesis.named, synthesis.made)))
    return files


def words_file(synthesis: Synthesis) -> str:
    """Return the Python file whose schedule runs the words that were found."""
    counts = f"{synthesis.least} micro-batches" + (" or more" if synthesis.is_periodic else "")
    assert synthesis.made is not None, "words were found"
    assert synthesis.made.times is not None, "of a row that ran"
    period = format_seconds(synthesis.made.times.throughput.weight_update_period_s)
    has_bars = any("|" in part for parts in synthesis.words.values() for part in parts)
    lines = [
        f'"""The Order that `ipusim suggest --order` found for {synthesis.made.source}: {period} per weight update.',
        "",
        f"For {counts}. Of each IPU the letters before its period, of it, and behind it: a letter is a",
        "pass of a stage over the micro-batch that is next for it, and with a period more there is a micro-batch more.",
        *(["A bar ends a time-step."] if has_bars else []),
        '"""',
        "",
        "from ipusim.api import schedules",
        "",
        "WORDS = {",
    ]
    for ipu, parts in synthesis.words.items():
        lines += [f"    {ipu}: (", *(line for part in parts for line in _broken(part)), "    ),"]
    lines += ["}", f'{NAME} = schedules.in_words("{NAME}", WORDS)', ""]
    return "\n".join(lines)


def _broken(letters: str) -> Iterator[str]:
    """Yield the lines of a text of letters, as a tuple's element."""
    *lines, last = textwrap.wrap(letters, _WIDTH - 12) or [""]
    yield from (f'        "{line} "' for line in lines)
    yield f'        "{last}",'
