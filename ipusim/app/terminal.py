"""What the command line has of its terminal: text and tables as wide as it is, interrupts, and a progress bar."""

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

#: Seconds of a run after which a terminal gets a progress bar.
_PATIENCE_S: Final = 1.0
#: Seconds between two lines of how far a command is: to a file or a pipe, and on a terminal.
_LINES_S: Final = 10.0
_UPDATE_S: Final = 0.25
#: Columns of a table that goes to a file or a pipe.
_PIPE_WIDTH: Final = 140
#: What lines are indented by: blanks, or a name and the blanks behind it.
_HANGING: Final = re.compile(r"\s*(?:\S+\s{2,})?")


def print_text(*paragraphs: str) -> None:
    """Print paragraphs that break between words where the terminal ends; to a file or a pipe each is one line.

    A line goes on below its own first word, or below what a name and several blanks begin it with. A word that is
    longer than a line, such as the path of a file, stays whole.
    """
    width = _width()
    for paragraph in paragraphs:
        for line in paragraph.split("\n"):
            print(line if width is None else _wrapped(line, width), flush=True)


def _wrapped(line: str, width: int) -> str:
    indent = _HANGING.match(line)
    hanging = " " * indent.end() if indent and indent.end() < width // 2 else ""
    return textwrap.fill(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def _width() -> int | None:
    """Return the columns of the terminal; None for a file or a pipe, unless COLUMNS is set, which holds everywhere."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns


def print_tables(*tables: Table, to_stderr: bool = False) -> None:
    """Print tables as wide as the terminal, or as wide as they need where there is none."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from ipusim.app.render.fitted_tables import fitted

    # With a height too, or the library takes 80 columns for every terminal that it calls dumb.
    console = Console(width=_width() or _PIPE_WIDTH, height=1, stderr=to_stderr)
    for part in chain.from_iterable(fitted(table, console.width) for table in tables):
        shown = part.table
        console.print(Text(shown.title, style="italic"))
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(shown.header))
        for column, (name, width) in enumerate(zip(shown.header, part.widths, strict=True)):
            justify: Literal["left", "right"] = "right" if shown.has_numbers(column) else "left"
            drawn.add_column(name, justify=justify, overflow="fold", width=width)
        for row in shown.rows:
            drawn.add_row(*map(Text, row))
        console.print(drawn)


def print_result(result: Result, form: str, *ends: str) -> None:
    """Print a result, and lines below it; in a form such as ``.json`` the result alone."""
    from ipusim.app.study.result import Preformatted

    if form:
        print(result.text(form).decode(), end="", flush=True)
        return
    for part in result.shown():
        if isinstance(part, Preformatted):
            print(part, end="" if part.endswith("\n") else "\n", flush=True)
        elif isinstance(part, str):
            print_text(part)
        else:
            print_tables(part)
    print_text(*ends)


def keep_watch() -> None:
    """Collect garbage from here on, in a process that put it off until long work begins; present objects stay."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Clear up on an interrupt, and only then end as an interrupted process does; elsewhere it ends at once.

    Gives a function that raises KeyboardInterrupt anew, as a library may have lost the first one: what comes while C
    calls back into Python, or a finalizer runs, goes to ``sys.unraisablehook``, which says nothing of it here.
    """
    interrupted = False
    told = sys.unraisablehook

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

    def tell(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            told(lost)

    sys.unraisablehook = tell
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield heed
    finally:
        sys.unraisablehook = told
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if interrupted:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether an interrupt asked to stop; a second one interrupts at once.

    What has come so far is written then, and only after that it ends as an interrupted process does.
    """
    requested = False
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield lambda: False
        return

    def interrupt(*_: object) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: requested
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if requested:
            sys.stdout.flush()
            signal.raise_signal(signal.SIGINT)


@contextmanager
def status(name: str) -> Iterator[Callable[[Callable[[], str]], None]]:
    """Yield a function that shows how far a command is: in one line of a terminal, else in a line now and then."""
    shown = time.monotonic()

    def each(seconds: float, show: Callable[[str], None], text: Callable[[], str]) -> None:
        nonlocal shown
        if time.monotonic() - shown > seconds:
            shown = time.monotonic()
            show(f"{name}: {text()}")

    if not sys.stderr.isatty():
        yield partial(each, _LINES_S, partial(print, file=sys.stderr, flush=True))
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(name)) as line:
        yield partial(each, _UPDATE_S, lambda text: line.update(Text(text)))


@contextmanager
def progress(name: str, heed: Callable[[], None]) -> Iterator[Progress]:
    """Yield a function that heeds interrupts and draws a progress bar, once a run has lasted a while on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: heed()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    began = time.monotonic()
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None, visible=False)

        def show(done: int, total: int) -> None:
            heed()
            if time.monotonic() - began > _PATIENCE_S:
                bar.update(task, completed=done, total=total, visible=True)

        yield show
