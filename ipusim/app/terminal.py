"""Print to a terminal: text and tables fitted to its width, interrupts, and progress."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from ipusim.api import Progress
    from ipusim.app.render.tables import Table
    from ipusim.app.study.result import Result

#: Seconds before a terminal shows a progress bar.
_PATIENCE_S: Final = 1.0
#: Seconds between status lines in a file or pipe, and between updates of a terminal's line.
_LINES_S: Final = 10.0
_UPDATE_S: Final = 0.25
#: Columns of a table in a file or pipe.
_PIPE_WIDTH: Final = 140
#: Begin of a line under which its further lines are indented: blanks, or a name and at least two blanks.
_HANGING: Final = re.compile(r"\s*(?:\S+\s{2,})?")


def print_text(*paragraphs: str) -> None:
    """Print paragraphs wrapped to the terminal; files and pipes get one line per paragraph.

    Wrapped lines are indented like their first word, or like the text after a leading name and several blanks. Words
    longer than a line stay whole, such as file paths.
    """
    width = _width()
    for paragraph in paragraphs:
        for line in paragraph.split("\n"):
            print(line if width is None else _wrap(line, width), flush=True)


def _wrap(line: str, width: int) -> str:
    indent = _HANGING.match(line)
    hanging = " " * indent.end() if indent and indent.end() < width // 2 else ""
    return textwrap.fill(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def _width() -> int | None:
    """Return the terminal's columns; None for files and pipes unless COLUMNS is set."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns


def print_tables(*tables: Table, to_stderr: bool = False) -> None:
    """Print tables fitted to the terminal, or to a fixed width without one."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from ipusim.app.render.fitted_tables import fit_table

    # The height is needed too: rich assumes 80 columns for dumb terminals.
    console = Console(width=_width() or _PIPE_WIDTH, height=1, stderr=to_stderr)
    for part in chain.from_iterable(fit_table(table, console.width) for table in tables):
        table = part.table
        console.print(Text(table.title, style="italic"))
        rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(table.header))
        for column, (name, width) in enumerate(zip(table.header, part.widths, strict=True)):
            justify: Literal["left", "right"] = "right" if table.has_numbers(column) else "left"
            rich_table.add_column(name, justify=justify, overflow="fold", width=width)
        for row in table.rows:
            rich_table.add_row(*map(Text, row))
        console.print(rich_table)


def print_result(result: Result, output_form: str, *ends: str) -> None:
    """Print a result with lines below; in a data form such as ``.json`` only the result."""
    from ipusim.app.study.result import Preformatted

    if output_form:
        print(result.text(output_form).decode(), end="", flush=True)
        return
    for part in result.printout():
        if isinstance(part, Preformatted):
            print(part, end="" if part.endswith("\n") else "\n", flush=True)
        elif isinstance(part, str):
            print_text(part)
        else:
            print_tables(part)
    print_text(*ends)


def resume_garbage_collection() -> None:
    """Enable garbage collection, which the command line had disabled for a quick start; existing objects are exempt."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Handle interrupts by cleaning up before ending as an interrupted process.

    Yields a function that raises KeyboardInterrupt if an interrupt has come. Libraries may lose the first exception:
    exceptions inside C callbacks and finalizers go to ``sys.unraisablehook``, which is silenced here for interrupts. If
    the process has another handler of interrupts than the default, nothing is changed.
    """
    interrupted = False
    previous = sys.unraisablehook

    def heed() -> None:
        if interrupted:
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield heed
        return

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def tell(report: sys.UnraisableHookArgs) -> None:
        if not isinstance(report.exc_value, KeyboardInterrupt):
            previous(report)

    sys.unraisablehook = tell
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield heed
    finally:
        sys.unraisablehook = previous
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if interrupted:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether an interrupt asked to stop.

    A second interrupt takes effect at once. After the block, the process ends like an interrupted one, with its results
    written.
    """
    is_requested = False
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield lambda: False
        return

    def interrupt(*_: object) -> None:
        nonlocal is_requested
        if is_requested:
            raise KeyboardInterrupt
        is_requested = True

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: is_requested
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if is_requested:
            sys.stdout.flush()
            signal.raise_signal(signal.SIGINT)


@contextmanager
def status(name: str) -> Iterator[Callable[[Callable[[], str]], None]]:
    """Yield a function that shows a command's status. A terminal shows a live line, other outputs occasional lines."""
    last_time = time.monotonic()

    def show_after(seconds: float, show: Callable[[str], None], text: Callable[[], str]) -> None:
        nonlocal last_time
        if time.monotonic() - last_time > seconds:
            last_time = time.monotonic()
            show(f"{name}: {text()}")

    if not sys.stderr.isatty():
        yield partial(show_after, _LINES_S, partial(print, file=sys.stderr, flush=True))
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(name)) as line:
        yield partial(show_after, _UPDATE_S, lambda text: line.update(Text(text)))


@contextmanager
def progress(name: str, heed: Callable[[], None]) -> Iterator[Progress]:
    """Yield a function that checks for interrupts with ``heed``, and shows the progress bar of a long run."""
    if not sys.stderr.isatty():
        yield lambda _count, _total: heed()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    began = time.monotonic()
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None, visible=False)

        def show(count: int, total: int) -> None:
            heed()
            if time.monotonic() - began > _PATIENCE_S:
                bar.update(task, completed=count, total=total, visible=True)

        yield show
