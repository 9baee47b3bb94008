"""The best Order of few passes, proven: active schedules by Giffler and Thompson, cut off by bounds and dominance.

Knows nothing of how ipusim searches. A stage has an IPU of its own, times are of (F, B) or (F, I, W), and micro-batches
go in order, as they are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


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
