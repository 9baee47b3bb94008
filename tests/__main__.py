"""The one test command: ``python -m tests`` checks style, types, imports and behaviour; extra words go to pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
    ("pytest", "--numprocesses", "auto", "--dist", "worksteal"),
)


def main(words: list[str]) -> int:
    """Run every check, also after one has failed, and return 0 only if all pass."""
    root = Path(__file__).parent.parent
    failed = []
    for tool, *arguments in CHECKS:
        if tool == "lint-imports":
            command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"]
        else:
            command = [sys.executable, "-m", tool, *arguments, *(words if tool == "pytest" else [])]
        print(f"== {tool}", flush=True)
        if subprocess.run(command, cwd=root, check=False).returncode:
            failed.append(tool)
    print(f"== failed: {', '.join(failed)}" if failed else "== all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
