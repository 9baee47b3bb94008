"""What the command line has of its terminal: tables as wide as it is, interrupts, and a progress bar."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from ipusim.machine.simulate import Progress
    from ipusim.render.tables import Table

#: Seconds of a run after which a terminal gets a progress bar.
_PATIENCE_S: Final = 1.0
#: Seconds between two lines of how far a command is: to a file or a pipe, and on a terminal.
_LINES_S: Final = 10.0
_UPDATE_S: Final = 0.25
#: Columns of a table that goes to a file or a pipe.
_PIPE_WIDTH: Final = 140


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or as wide as it needs where there is none."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from ipusim.render.fitted_tables import fitted

    # A file or a pipe has no width to keep to; whoever sets COLUMNS means it.
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(width=_PIPE_WIDTH if piped else None)
    for part in fitted(table, console.width):
        shown = part.table
        console.print(Text(shown.title, style="italic"))
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(shown.header))
        for column, (name, width) in enumerate(zip(shown.header, part.widths, strict=True)):
            justify: Literal["left", "right"] = "right" if shown.has_numbers(column) else "left"
            drawn.add_column(name, justify=justify, overflow="fold", width=width)
        for row in shown.rows:
            drawn.add_row(*map(Text, row))
        console.print(drawn)


def keep_watch() -> None:
    """Look for garbage from here on, in a process that put it off until long work begins; what there is, stays."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Clear up on an interrupt, and only then end as an interrupted process does; elsewhere it ends at once.

    Gives a function that raises KeyboardInterrupt anew, as a library may have lost the first one.
    """
    interrupted = False

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

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield heed
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if interrupted:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether an interrupt asked to stop; a second one interrupts at once.

    What has come so far is written then, and only after that it ends as an interrupted process does.
    """
    asked = False
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield lambda: False
        return

    def interrupt(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if asked:
            sys.stdout.flush()
            signal.raise_signal(signal.SIGINT)


@contextmanager
def status(name: str) -> Iterator[Callable[[Callable[[], str]], None]]:
    """Give a function that shows how far a command is: in one line of a terminal, else in a line now and then."""
    shown = time.monotonic()
    if not sys.stderr.isatty():

        def write(text: Callable[[], str]) -> None:
            nonlocal shown
            if time.monotonic() - shown > _LINES_S:
                shown = time.monotonic()
                print(f"{name}: {text()}", file=sys.stderr, flush=True)

        yield write
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(name)) as line:

        def update(text: Callable[[], str]) -> None:
            nonlocal shown
            if time.monotonic() - shown > _UPDATE_S:
                shown = time.monotonic()
                line.update(Text(f"{name}: {text()}"))

        yield update


@contextmanager
def progress(name: str, heed: Callable[[], None]) -> Iterator[Progress]:
    """Give a function that heeds interrupts and draws a progress bar, once a run has lasted a while on a terminal."""
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
