"""Orders of passes: drawn at random, and the best of few passes, proven.

The needs of a pass are written down here anew, as a walk takes them: nothing of ipusim's schedules, lowerings, checks
and searches is used. Stages of the best Orders have an IPU each, passes take (F, B) or (F, I, W) cycles, and micro-
batches go in order, as they are alike.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

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


class Exact:
    """All Orders of some stages, tried."""

    def __init__(self, times: Sequence[Sequence[int]], count: int, lag: int = 0) -> None:
        self.times, self.count, self.lag = times, count, lag
        self.stages, self.kinds = len(times), len(times[0])
        self.tail = self._tails()
        self.best = 1 << 60
        self._seen: dict[tuple[tuple[int, ...], ...], list[list[int]]] = {}
        self.done = [[0] * self.kinds for _ in times]
        self.free = [0] * self.stages
        self.ends: list[list[list[int]]] = [[[] for _ in of] for of in times]

    def _tails(self) -> dict[tuple[int, int], int]:
        """What follows a pass at least: on the way to the first stage's backward pass, and its own weights."""
        tail: dict[tuple[int, int], int] = {}
        for stage, own in enumerate(self.times):
            tail[stage, 2] = 0
            back = self.times[stage - 1][1] + self.lag + tail[stage - 1, 1] if stage else 0
            tail[stage, 1] = max(back, own[2] if self.kinds > 2 else 0)
        for stage in reversed(range(self.stages)):
            tail[stage, 0] = self.times[stage][1] + tail[stage, 1]
            if stage + 1 < self.stages:
                tail[stage, 0] = max(tail[stage, 0], self.times[stage + 1][0] + self.lag + tail[stage + 1, 0])
        return tail

    def makespan(self) -> int:
        """Return the least cycles in which all passes can run."""
        self._visit()
        return self.best

    def _needs(self, stage: int, kind: int) -> list[tuple[int, int, int]]:
        if kind == 2:
            return [(stage, 1, 0)]
        if kind == 0:
            return [(stage - 1, 0, self.lag)] if stage else []
        return [(stage, 0, 0), *([(stage + 1, 1, self.lag)] if stage + 1 < self.stages else [])]

    def _next(self) -> Iterator[tuple[int, int, int, bool]]:
        """Yield stage, kind and earliest begin of each pass that comes next, and whether it can be put there now."""
        for stage in range(self.stages):
            for kind in range(self.kinds):
                turn = self.done[stage][kind]
                if turn == self.count:
                    continue
                known = [(self.ends[of][what], lag) for of, what, lag in self._needs(stage, kind)]
                come = [ends[turn] + lag for ends, lag in known if len(ends) > turn]
                yield stage, kind, max([self.free[stage], *come]), len(come) == len(known)

    def _bound(self, coming: Sequence[tuple[int, int, int, bool]]) -> int:
        least = 0
        for stage, kind, begin, _ in coming:
            left = self.count - self.done[stage][kind]
            least = max(least, begin + left * self.times[stage][kind] + self.tail[stage, kind])
        for stage in range(self.stages):
            left = [(self.count - done) * time for done, time in zip(self.done[stage], self.times[stage], strict=True)]
            open_kinds = [kind for kind in range(self.kinds) if left[kind]]
            if open_kinds:
                last = min(self.tail[stage, kind] for kind in open_kinds)
                least = max(least, self.free[stage] + sum(left) + last)
            if left[1]:
                least = max(least, self.free[stage] + sum(left[:2]) + self.tail[stage, 1])
        return least

    def _dominated(self) -> bool:
        """Whether the same passes were put somewhere before, and all that matters later was no later."""
        now = list(self.free)
        for stage in range(self.stages):
            for kind in range(self.kinds):
                users = [
                    self.done[other][what]
                    for other in range(self.stages)
                    for what in range(self.kinds)
                    if any(need[:2] == (stage, kind) for need in self._needs(other, what))
                ]
                now += self.ends[stage][kind][min(users, default=self.count) :]
        others = self._seen.setdefault(tuple(map(tuple, self.done)), [])
        if any(all(a <= b for a, b in zip(other, now, strict=True)) for other in others):
            return True
        others[:] = [other for other in others if not all(b <= a for a, b in zip(other, now, strict=True))]
        others.append(now)
        return False

    def _visit(self) -> None:
        coming = list(self._next())
        if not coming:
            self.best = min(self.best, max(self.free))
        if not coming or self._bound(coming) >= self.best or self._dominated():
            return
        ready = [(begin + self.times[stage][kind], begin, stage, kind) for stage, kind, begin, can in coming if can]
        first, _, machine, _ = min(ready)
        for end, begin, stage, kind in sorted(ready, key=lambda each: (each[3] == 2, each[1])):
            if stage != machine or begin >= first:
                continue
            before, self.free[stage] = self.free[stage], end
            self.done[stage][kind] += 1
            self.ends[stage][kind].append(end)
            self._visit()
            self.free[stage] = before
            self.done[stage][kind] -= 1
            self.ends[stage][kind].pop()


#: Passes of a stage over a micro-batch: forward, backward whole, and in halves for its input and its weights.
F, B, I, W = "FBIW"  # noqa: E741 - the letter of the pass
_Passes = frozenset[tuple[str, int, int]]


class ExactTimeSteps:
    """All ways to lay passes out in the time-steps of lock-step.

    Micro-batches go in order within each kind of pass, as they are alike. A
    time-step has at most one pass of each kind of each stage. A pass comes in a later time-step than the passes that it
    needs, but for the last stage's backward pass, which may share that of its forward pass.
    """

    def __init__(self, times: Sequence[dict[str, int]], count: int, meeting: int, ipus: Sequence[int]) -> None:
        """Take of each stage the cycles of F, B, I and W, and its IPU; ``meeting`` follows each time-step."""
        self._times, self._count, self._meeting, self._ipus = times, count, meeting, ipus
        self._least: dict[_Passes, int] = {}

    def makespan(self, done: _Passes = frozenset()) -> int:
        """Return the least cycles in which all passes that are not ``done`` can run."""
        if done not in self._least:
            least = 0 if self._is_end(done) else 1 << 60
            for ran in self._time_steps(done):
                loads = [0] * len(self._ipus)
                for kind, stage, _ in ran:
                    loads[self._ipus[stage]] += self._times[stage][kind]
                least = min(least, max(loads) + self._meeting + self.makespan(done | ran))
            self._least[done] = least
        return self._least[done]

    def _is_end(self, done: _Passes) -> bool:
        return all(
            (B, stage, turn) in done or {(I, stage, turn), (W, stage, turn)} <= done
            for stage in range(len(self._times))
            for turn in range(self._count)
        )

    def _time_steps(self, done: _Passes) -> Iterator[_Passes]:
        """Yield every set of passes that may run in the next time-step."""
        ways = [_Passes()]
        for stage in range(len(self._times)):
            ways = [way | more for way in ways for more in self._of_stage(stage, done)]
        return (way for way in ways if way)

    def _of_stage(self, stage: int, done: _Passes) -> Iterator[_Passes]:
        last = len(self._times) - 1
        turns = range(self._count)
        forwards = [turn for turn in turns if (F, stage, turn) not in done][:1]
        for forward in [[], *([turn] for turn in forwards if stage == 0 or (F, stage - 1, turn) in done)]:
            first = {(F, stage, turn) for turn in forward}
            there = done | first if stage == last else done
            ready = [
                turn
                for turn in turns
                if (F, stage, turn) in there
                and (stage == last or {(B, stage + 1, turn), (I, stage + 1, turn)} & done)
                and not {(B, stage, turn), (I, stage, turn)} & done
            ]
            halves = [turn for turn in turns if (I, stage, turn) in done and (W, stage, turn) not in done][:1]
            for kinds in ("", B, I, B + I, I + B):
                if len(ready) >= len(kinds):
                    back = {(kind, stage, turn) for kind, turn in zip(kinds, ready, strict=False)}
                    for weights in [[], halves] if halves else [[]]:
                        yield frozenset(first | back | {(W, stage, turn) for turn in weights})
