"""Which threads of a trace are ranks, and which of a pass's spans count: the device's, where there are any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipusim.app.profiles.names import FORWARD, OVERLAP, PASSES, UPDATE
from ipusim.app.profiles.spans import Recording, Span
from ipusim.base.errors import FileError

#: A process and a thread, and whether they are a device's.
_Lane = tuple[str, str, bool]


def by_worker(lanes: Mapping[_Lane, Sequence[Span]], found: Recording) -> tuple[list[Span], list[str]]:
    """Return the spans that count, whose ``process`` is a rank, and notes on those that do not.

    Where a device has a pass of a stage, the host's spans of it do not count: they end when kernels are launched. Of
    several streams of a device that is the one with most spans of the pass. Threads that each run forward passes of the
    same micro-batches are a rank each.

    Raises FileError if a thread's passes belong to no rank.
    """
    devices = sorted({process for process, _, device in lanes if device}, key=_in_order)
    hosts = sorted({process for (process, _, device), spans in lanes.items() if not device and spans}, key=_in_order)
    on_device = {(span.what, span.stage) for lane, spans in lanes.items() if lane[2] for span in spans}
    if on_device and len(hosts) > 1 and len(devices) != len(hosts):
        raise FileError(
            f"{found.path}: expected a device for each of {len(hosts)} processes, got {len(devices)}: import a file of "
            "each rank"
        )
    chosen, notes = list[Span](), list[str]()
    by_host: dict[str, dict[str, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for (process, thread, device), spans in lanes.items():
        if not device:
            kept = [span for span in spans if (span.what, span.stage) not in on_device]
            if kept:
                by_host[process][thread] = kept
    for process, threads in by_host.items():
        chosen += _ranks_of_threads(process, threads, found, notes)
    for number, process in enumerate(devices):
        streams = {thread: spans for (owner, thread, device), spans in lanes.items() if device and owner == process}
        host = hosts[number] if number < len(hosts) else process
        for key in dict.fromkeys((span.what, span.stage) for spans in streams.values() for span in spans):
            of_key = [[span for span in spans if (span.what, span.stage) == key] for spans in streams.values()]
            best = max(of_key, key=lambda spans: (len(spans), sum(span.us for span in spans)))
            for span in best:
                span.process = host
            chosen += best
        if len(streams) > 1:
            notes.append(
                f"{found.path}: of each pass the stream with most of its spans counts, of {len(streams)} streams."
            )
        if process in found.ranks:
            found.ranks.setdefault(host, found.ranks[process])
    return chosen, notes


def _ranks_of_threads(
    process: str, threads: Mapping[str, list[Span]], found: Recording, notes: list[str]
) -> list[Span]:
    """Return the spans of a process's threads, each of which is a rank if several run the same forward passes."""
    running = {
        thread: spans for thread, spans in threads.items() if any(span.what in (FORWARD, OVERLAP) for span in spans)
    }
    if len(running) < 2 or _is_pool([*running.values()]):
        return [span for spans in threads.values() for span in spans]
    owners = {span.stage: thread for thread, spans in running.items() for span in spans if span.stage}
    notes.append(f"{found.path}: each of {len(running)} threads of process {process} with forward passes is a rank.")
    kept = list[Span]()
    for thread, spans in threads.items():
        for span in spans:
            owner = thread if thread in running else owners.get(span.stage)
            if owner is None and span.what == UPDATE:
                # One thread updates the stages of all, so that each has an equal part.
                us = span.us / len(running)
                kept += [replace(span, process=f"{process} thread {name}", us=us) for name in running]
                continue
            if owner is None:
                raise FileError(
                    f"{found.path}: expected the stage in names of {span.what}, as {len(running)} threads of process "
                    f"{process} have forward passes, got {span.what} passes on thread {thread} without one: say with "
                    f"--name {span.what}=NAME{{stage}} whose they are"
                )
            span.process = f"{process} thread {owner}"
            kept.append(span)
    return kept


def _is_pool(threads: Sequence[Sequence[Span]]) -> bool:
    """Return whether threads take turns at the micro-batches of each stage, none of which two of them have."""
    seen: dict[tuple[str, str, int], int] = {}
    for number, spans in enumerate(threads):
        for span in spans:
            if span.what in PASSES and span.what != UPDATE:
                if span.micro_batch is None:
                    return False
                if seen.setdefault((span.what, span.stage, span.micro_batch), number) != number:
                    return False
    # Threads of different stages share no micro-batch of a stage either: they are ranks.
    stages = [{span.stage for span in spans} for spans in threads]
    return all(stage == stages[0] for stage in stages)


def _in_order(text: str) -> tuple[int, str]:
    return (len(text), text)
