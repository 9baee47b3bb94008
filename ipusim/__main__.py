"""The process ``ipusim``, or ``python -m ipusim``: settings before any other import."""

from __future__ import annotations

import gc
import signal


def main() -> None:
    """Run the command line. An interrupt during the start ends the process at once, as nothing needs a clean-up yet."""
    # A process started with interrupts ignored, for example by nohup, continues to ignore them.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Objects made during the start of a command live until its end: repeated garbage collection took a tenth of a run
    # on 64 IPUs, and a fifth of a command that refuses its input. Long work turns the collection on again.
    gc.disable()
    from ipusim.app.cli import main as command_line  # noqa: PLC0415 - an import may be interrupted too

    command_line()


if __name__ == "__main__":
    main()
