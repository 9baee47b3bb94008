"""Compiled modules that the processes of a test run share, and the programs that a test leaves behind."""

import sys
import sysconfig
from contextlib import suppress
from pathlib import Path


def link_libraries(prefix: Path) -> None:
    """Link what is compiled beside the sources of installed packages to where it is looked for, the first time.

    With ``sys.pycache_prefix`` Python reads nothing of it: in a fresh environment every worker compiled 1,800 modules
    anew that pip had compiled. A link to what is out of date does no harm, as Python compares it with its source and
    replaces the link.

    Args:
        prefix: the folder of compiled modules, ``sys.pycache_prefix``.
    """
    compiled = f"__pycache__/*.{sys.implementation.cache_tag}.pyc"
    for library in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}:
        if (prefix / library.relative_to(library.anchor)).exists():
            continue
        for file in library.rglob(compiled):
            link = prefix / file.parent.parent.relative_to(file.anchor) / file.name
            link.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # of another process that began at the same time
                link.symlink_to(file)


def forget_programs() -> None:
    """Forget what programs have left: their configuration, which threads would find."""
    if found := sys.modules.get("ipusim.ipu.runtime.program_state"):
        found.configure(None)
