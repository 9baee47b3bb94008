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
#: By stage and kind of pass the ends of those that have run.
_Ends = dict[tuple[int, int], tuple[int, ...]]


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


def random_passes(rng: random.Random, shape: PlanShape) -> Passes:
    """Return the passes of each IPU, such as ``F0.3``, in the order of a random walk that never has to wait.

    Each stage's backward pass over each micro-batch runs whole or in halves, as chance has it.
    """
    share = rng.choice((0, 0.5, 1)) if shape.training else 0
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


def random_order(rng: random.Random, shape: PlanShape) -> Order:
    """Return an Order named ``drawn`` of what :func:`random_passes` has drawn."""
    return Order.from_passes("drawn", shape, random_passes(rng, shape))


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
    """All Orders of some stages, tried: of two that ran the same passes, one that is never behind the other goes on."""

    def __init__(self, times: Sequence[Sequence[int]], count: int) -> None:
        """Take of each stage the cycles of F and B, or of F, I and W; ``count`` micro-batches pass through them."""
        self._count = count
        self._times = {(stage, kind): time for stage, of in enumerate(times) for kind, time in enumerate(of)}
        self._needs = {
            (stage, kind): [each for each in self._before(stage, kind) if each in self._times]
            for stage, kind in self._times
        }
        self._users = {each: [other for other in self._times if each in self._needs[other]] for each in self._times}

    def _before(self, stage: int, kind: int) -> list[tuple[int, int]]:
        return [[(stage - 1, 0)], [(stage, 0), (stage + 1, 1)], [(stage, 1)]][kind]

    def makespan(self) -> int:
        """Return the least cycles in which all passes can run."""
        ways: list[_Ends] = [dict.fromkeys(self._times, ())]
        for _ in range(len(self._times) * self._count):
            kept: dict[tuple[int, ...], list[tuple[list[int], _Ends]]] = defaultdict(list)
            for ends in (longer for way in ways for longer in self._longer(way)):
                others, now = kept[tuple(map(len, ends.values()))], self._matters(ends)
                if not any(all(a <= b for a, b in zip(other, now, strict=True)) for other, _ in others):
                    others[:] = [each for each in others if any(a < b for a, b in zip(each[0], now, strict=True))]
                    others.append((now, ends))
            ways = [ends for others in kept.values() for _, ends in others]
        return min(max(each[-1] for each in ends.values()) for ends in ways)

    def _longer(self, ends: _Ends) -> Iterator[_Ends]:
        """Yield an Order with each pass that may come next on the IPU that can end one first (Giffler and Thompson)."""
        ready = []
        for (stage, kind), time in self._times.items():
            turn, needs = len(ends[stage, kind]), self._needs[stage, kind]
            if turn < self._count and all(len(ends[need]) > turn for need in needs):
                begin = max([self._free(ends, stage), *(ends[need][turn] for need in needs)])
                ready.append((begin + time, stage, kind, begin))
        first, machine, *_ = min(ready)
        for end, stage, kind, begin in ready:
            if stage == machine and begin < first:
                yield {**ends, (stage, kind): (*ends[stage, kind], end)}

    def _free(self, ends: _Ends, stage: int) -> int:
        return max(of[-1] if of else 0 for (where, _), of in ends.items() if where == stage)

    def _matters(self, ends: _Ends) -> list[int]:
        """Return all that later passes wait for: when IPUs are free, and ends that not all users have waited for."""
        now = [self._free(ends, stage) for stage in {stage for stage, _ in self._times}]
        for each, of in ends.items():
            now += of[min((len(ends[user]) for user in self._users[each]), default=self._count) :]
        return now


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
