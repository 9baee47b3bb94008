"""Define the options of every picture: title, size and theme; refuse unreadable sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from typing import Final

from ipusim.api import runs
from ipusim.app.render.style import WIDTH_IN
from ipusim.base.errors import OptionError

#: Width and height of a picture as a user writes them.
_SIZE: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)x(\d{1,3}(?:\.\d{1,3})?)in")
#: Minimum side of a picture in inches.
_LEAST: Final = 1.0
#: Maximum side of a picture in inches.
_MOST: Final = 40.0
#: Maximum number of characters of a title.
_LONGEST_TITLE: Final = 1000
#: Names of themes, the default first.
THEMES: Final = ("light", "dark", "print")


@dataclass(frozen=True)
class Picture:
    """Options of a picture.

    Attributes:
        title: headline in place of the run's description; the line below still names schedule and sync mode.
        size: width and height, such as ``6x3in``; by default 10 inches wide, and as high as the rows need.
        theme: ``light``, ``dark`` for slides on dark paper, or ``print`` in greys.

    Raises:
        OptionError: for an unprintable title, a malformed size or one outside 1 to 40 inches, and an unknown theme.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> figure = ipusim.run(options).figure(picture=ipusim.Picture(title="Two stages", size="6x3in"))
        >>> figure.get_size_inches().tolist()
        [6.0, 3.0]
    """

    title: str = ""
    size: str = ""
    theme: str = THEMES[0]

    def __post_init__(self) -> None:
        """Check title, size and theme. Raises OptionError."""
        if self.theme not in THEMES:
            raise OptionError("theme", f"expected {runs.one_of(THEMES)}, got {runs.show(self.theme)}")
        title = self.title
        if not isinstance(title, str) or not title.replace("\n", "").isprintable() or len(title) > _LONGEST_TITLE:
            raise OptionError("title", f"expected at most {_LONGEST_TITLE} letters and signs, got {runs.show(title)}")
        match = _SIZE.fullmatch(self.size) if isinstance(self.size, str) else None
        if self.size != "" and (match is None or not all(_LEAST <= float(side) <= _MOST for side in match.groups())):
            hint = f"expected a width and a height from {_LEAST:g} to {_MOST:g} inches, such as 6x3in"
            raise OptionError("size", f"{hint}, got {runs.show(self.size)}")

    @property
    def width_in(self) -> float:
        """Width in inches."""
        match = _SIZE.fullmatch(self.size)
        return WIDTH_IN if match is None else float(match[1])

    @property
    def height_in(self) -> float | None:
        """Height in inches; None if the height follows from the rows."""
        match = _SIZE.fullmatch(self.size)
        return None if match is None else float(match[2])

    def refusal(self, reason: str) -> OptionError:
        """Return the error of an unreadably small size.

        Args:
            reason: part of the picture with too little room, and the needed room if known.

        Returns:
            The error, which names the option.
        """
        return OptionError("size", f"expected a larger picture, got {self.size}: {reason}".replace("{", "{{"))

    def too_low(self, parts: str, least_in: float) -> OptionError:
        """Return the error of a picture too low for some of its parts.

        Args:
            parts: the parts in words.
            least_in: height of the parts in inches.

        Returns:
            The error, which names the option.
        """
        return self.refusal(f"{parts} take at least {ceil(least_in * 10) / 10:.1f} inches of height")


#: Default options of a picture.
DEFAULT: Final = Picture()
