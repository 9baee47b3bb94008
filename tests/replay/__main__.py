"""``python -m tests.replay``: record what this work tree makes of many requests, and compare another with it."""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.replay import requests
from tests.replay.comparison import compare
from tests.replay.figures import text_of
from tests.replay.record import Record, read, runs, write

#: New figures that are listed.
_LISTED = 40


def main(words: list[str]) -> int:
    """Do as a command line says; return 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser(
        "record", help="run scenarios, programs and drawn requests, and write what they come to"
    )
    record.add_argument("--small", action="store_true", help="a few of them, for the record of the test suite")
    record.add_argument("--pictures", action="store_true", help="draw the pictures of the scenarios too")
    held = commands.add_parser(
        "compare", help="run the requests of a record, and say what differs; 1 where anything does"
    )
    show = commands.add_parser("show", help="print the run of one request of a record, span by span, for a diff")
    for command in (record, held, show):
        command.add_argument("file", type=Path, metavar="FILE", help="the record, a .json.xz")
    for command in (record, held):
        command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes  [default: 1]")
    held.add_argument("--only", default="", metavar="WORDS", help="requests with these words in their names")
    held.add_argument("--without-pictures", action="store_true", help="leave out the pictures that a record has")
    show.add_argument("name", metavar="NAME", help="of the request, such as 'options 017'")
    asked = parser.parse_args(words)
    if asked.command == "record":
        found = requests.small() if asked.small else requests.every()
        write(asked.file, found, draw=asked.pictures, jobs=asked.jobs)
        print(f"{asked.file}: {len(found)} requests, {asked.file.stat().st_size:,} bytes")
        return 0
    if asked.command == "show":
        return _show(asked.file, asked.name)
    record = read(asked.file).only(asked.only)
    return _compare(record.without_pictures() if asked.without_pictures else record, asked.file, asked.jobs)


def _compare(record: Record, file: Path, jobs: int) -> int:
    began = time.perf_counter()
    differences, new = compare(record, jobs)
    for each in differences:
        print(each)
    if new:
        print("New figures, which are no difference:")
        for name, count in sorted(new.items())[:_LISTED]:
            print(f"  {name} (of {count} requests)")
        if len(new) > _LISTED:
            print(f"  and {len(new) - _LISTED} more")
    if not record.same_machine:
        print("The record was made on another machine: what runs have learnt is not compared.")
    count, seconds = len(record.requests), time.perf_counter() - began
    equal = "equal" if not differences else f"{len(differences)} differ"
    print(f"{equal}: {count} requests against {file} in {seconds:.0f} s")
    return int(bool(differences))


def _show(file: Path, name: str) -> int:
    (request,) = (each for each in read(file).requests if each.name == name)
    with TemporaryDirectory() as folder:
        for which, run in runs(request, Path(folder)):
            print(which, text_of(run), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
