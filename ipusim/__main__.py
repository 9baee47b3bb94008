"""The process ``ipusim``, or ``python -m ipusim``: what it needs before anything else is imported."""

from __future__ import annotations

import gc
import signal


def main() -> None:
    """Run the command line; an interrupt while it starts ends the process at once, as nothing is to be cleared up."""
    # A process that was started with interrupts ignored, as by nohup, goes on ignoring them.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What is made while a command starts stays until its end: looking for garbage in it, again and again, took a tenth
    # of a run of 64 IPUs, and a fifth of a command that refuses its input. Long work begins by looking again.
    gc.disable()
    from ipusim.app.cli import main as command_line  # noqa: PLC0415 - an import may be interrupted too

    command_line()


if __name__ == "__main__":
    main()
