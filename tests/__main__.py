"""The one test command: ``python -m tests`` checks style, types, imports and behaviour; extra words go to pytest.

``python -m tests --all`` draws more examples of every property, runs the slowest tests too, and measures the ratios of
``tests/bench`` that are stable; ``--every`` draws all examples, and runs those too that are run by name, as they take a
minute and look at what seldom changes.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: What looks at the code alone. It has one core at most, and runs beside the tests.
CHECKS = {
    "ruff check": ("-m", "ruff", "check", "."),
    "ruff format": ("-m", "ruff", "format", "--check", "."),
    "lint-imports": ("-c", "from importlinter.cli import lint_imports_command as main; main()"),
    "mypy": ("-m", "mypy"),
}
TESTS = ("-m", "pytest", "--numprocesses", "auto", "--dist", "worksteal")
#: Ratios of times, behind all else, which would disturb them.
RATIOS = ("-m", "pytest", "tests/bench", "-m", "stable", "--quiet")


def checked() -> dict[str, subprocess.CompletedProcess[str]]:
    """Run every check of the code and return how each ended, with all that it said in its output."""
    return {
        name: subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for name, words in CHECKS.items()
    }


def main(words: list[str]) -> int:
    """Run every check, also after one has failed, and return 0 only if all pass."""
    with ThreadPoolExecutor(1) as beside:
        checks = beside.submit(checked)
        print("== pytest", flush=True)
        tests = subprocess.run([sys.executable, *TESTS, *words], cwd=ROOT, check=False)
    failed = ["pytest"] if tests.returncode else []
    done = checks.result()
    if {"--all", "--every"} & {*words}:
        print("== ratios", flush=True)
        failed += ["ratios"] if subprocess.run([sys.executable, *RATIOS], cwd=ROOT, check=False).returncode else []
    for name, check in done.items():
        print(f"== {name}\n{check.stdout}", end="")
        if check.returncode:
            failed.append(name)
    print(f"== failed: {', '.join(failed)}" if failed else "== all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
