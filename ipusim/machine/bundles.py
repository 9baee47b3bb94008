"""Link directions that carry for equally long in a merged copy: they end by one event, and are recorded as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ipusim.machine import resources
from ipusim.machine.facility import Context
from ipusim.machine.resources import Workers
from ipusim.pricing.costs import StepCopy
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import NONE


class Bundle(NamedTuple):
    """Link directions that carry for equally long in a copy.

    Attributes:
        what: their spans, as the recorder knows them together.
        cycles: for how long.
        links: which they are.
    """

    what: int
    cycles: int
    links: Workers


def bundles_of(context: Context, copies: Sequence[StepCopy]) -> list[list[Bundle]]:
    """Return the bundles of each copy: links that carry in the same copies for as long.

    Where one may be slower than another, each link is a bundle of its own.
    """
    labels, recorder = [direction.label for direction in context.costs.links], context.recorder
    alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for link in sorted({share.link for copy in copies for share in copy.links}):
        cycles = tuple(
            (which, share.cycles) for which, copy in enumerate(copies) for share in copy.links if share.link == link
        )
        alike.setdefault(cycles, []).append(link)
    bundles: list[list[Bundle]] = [[] for _ in copies]
    for pattern, together in alike.items():
        steady = context.clock.is_steady(resources.links(labels[link] for link in together))
        for links in [together] if steady else [[link] for link in together]:
            workers = resources.links(labels[link] for link in links)
            for which, link_cycles in pattern:
                sizes = {share.link: share.bytes for share in copies[which].links}
                spans = (Description(SpanKind.LINK, link=link, bytes=sizes[link], replica=NONE) for link in links)
                what = recorder.group([recorder.describe(span) for span in spans])
                bundles[which].append(Bundle(what, link_cycles, workers))
    return bundles
