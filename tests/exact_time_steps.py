"""The best time-steps of few passes in lock-step, by trying them all.

Knows nothing of how ipusim searches: no bound, no dominance, and no way left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
