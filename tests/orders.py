"""Orders at random: every one legal, drawn by a walk through what a micro-batch's passes need of each other.

The needs are written down here anew, as a walk takes them; nothing of schedules, lowerings or the check is used.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape

#: A pass: its letter, stage and micro-batch.
OnePass = tuple[str, int, int]
Passes = dict[int, list[str]]


def lives(shape: PlanShape, halves: Mapping[tuple[int, int], bool] | None = None) -> dict[OnePass, list[OnePass]]:
    """Return every pass of an execution with those that must have ended before it begins.

    ``halves`` says of which (stage, micro-batch) the backward pass runs in halves; of none by default.
    """
    halves = halves or {}
    found: dict[OnePass, list[OnePass]] = {}
    for micro in range(shape.micro_batches):
        for place, parts in enumerate(shape.parts):
            earlier = shape.parts[place - 1] if place else ()
            later = shape.parts[place + 1] if place + 1 < len(shape.parts) else ()
            for stage in parts:
                found["F", stage, micro] = [("F", other, micro) for other in earlier]
                if micro % shape.segments:
                    found["F", stage, micro].append(("F", stage, micro - 1))
                if not shape.training:
                    continue
                kept = ("F", stage, micro)
                if shape.recompute and stage != shape.stages - 1:
                    found["R", stage, micro] = [kept]
                    kept = ("R", stage, micro)
                gradients = [("I" if halves.get((other, micro)) else "B", other, micro) for other in later]
                if (micro + 1) % shape.segments:  # the next segment's keys and values are of this one too
                    gradients.append(("I" if halves.get((stage, micro + 1)) else "B", stage, micro + 1))
                if halves.get((stage, micro)):
                    found["I", stage, micro] = [kept, *gradients]
                    found["W", stage, micro] = [("I", stage, micro)]
                else:
                    found["B", stage, micro] = [kept, *gradients]
    return found


def random_passes(rng: random.Random, shape: PlanShape, *, halves: bool = True) -> Passes:
    """Return the passes of each IPU, such as ``F0.3``, in the order of a random walk that never has to wait.

    With ``halves`` each stage's backward pass over each micro-batch runs whole or in halves, as chance has it.
    """
    share = rng.choice((0, 0.5, 1)) if halves and shape.training else 0
    places = [(stage, micro) for stage in range(shape.stages) for micro in range(shape.micro_batches)]
    needs = lives(shape, {place: rng.random() < share for place in places})
    left = {each: len(before) for each, before in needs.items()}
    behind = defaultdict(list)
    for each, before in needs.items():
        for other in before:
            behind[other].append(each)
    # Breadth, depth and chance: walks that are chance alone all look alike.
    taste = rng.choice(("any", "first", "last", "backward"))
    ready = [each for each, count in left.items() if not count]
    found: Passes = {ipu: [] for ipu in sorted(set(shape.mapping))}
    while ready:
        at = rng.randrange(len(ready))
        if taste == "first" and rng.random() < 0.8:
            at = 0
        elif taste == "last" and rng.random() < 0.8:
            at = len(ready) - 1
        elif taste == "backward" and rng.random() < 0.8:
            at = max(range(len(ready)), key=lambda place: (ready[place][0] != "F", -ready[place][2]))
        one = ready.pop(at)
        found[home_of(shape, *one[1:])].append(text(one))
        for other in behind[one]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    return found


def home_of(shape: PlanShape, stage: int, micro: int) -> int:
    """Return the IPU on which a stage runs a micro-batch: where it is mirrored, odd ones on its second copy."""
    return shape.mapping[shape.stages - 1 - stage if shape.mirrored and micro % 2 else stage]


def random_order(rng: random.Random, shape: PlanShape, *, halves: bool = True) -> Order:
    """Return an Order named ``drawn`` of what :func:`random_passes` has drawn."""
    return Order.from_passes("drawn", shape, random_passes(rng, shape, halves=halves))


def random_mapping(rng: random.Random, stages: int, ipus: int) -> tuple[int, ...]:
    """Return an IPU of each stage: any of so many, or round them in turn."""
    if rng.random() < 0.3:
        return tuple(stage % ipus for stage in range(stages))
    return tuple(rng.randrange(ipus) for _ in range(stages))


def text(one: OnePass) -> str:
    letter, stage, micro = one
    return f"{letter}{stage}.{micro}"


def read(word: str) -> OnePass:
    stage, micro = word[1:].split(".")
    return word[0], int(stage), int(micro)


def passes_of(order: Order) -> Passes:
    """Return the passes of each IPU of an Order, in the order in which it runs them."""
    table = order.table.tolist()
    found: Passes = defaultdict(list)
    for *_, ipu, kind, stage, micro in table:
        found[ipu].append(f"{'FBRIW'[kind]}{stage}.{micro}")
    return found


def needs_of(shape: PlanShape, words: Iterable[str]) -> dict[OnePass, list[OnePass]]:
    """Return what the passes need, their halves being those that are among ``words``."""
    halves = {(stage, micro): True for letter, stage, micro in map(read, words) if letter in "IW"}
    return lives(shape, halves)


def walk(shape: PlanShape, passes: Mapping[int, Sequence[str]]) -> dict[int, OnePass]:
    """Run each IPU's passes as their needs allow, and return where each IPU that cannot go on stands.

    A pass needs what it needs on the IPU where it is; an IPU that has no more passes is done.
    """
    needs = needs_of(shape, (word for words in passes.values() for word in words))
    done: set[OnePass] = set()
    at = dict.fromkeys(passes, 0)
    moved = True
    while moved:
        moved = False
        for ipu, words in passes.items():
            while at[ipu] < len(words) and all(each in done for each in needs[read(words[at[ipu]])]):
                done.add(read(words[at[ipu]]))
                at[ipu] += 1
                moved = True
    return {ipu: read(words[at[ipu]]) for ipu, words in passes.items() if at[ipu] < len(words)}
