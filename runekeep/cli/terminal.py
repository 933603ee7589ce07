"""Where commands draw. What people said may hold anything, and a terminal obeys some of it."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_OBEYED = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
# Controls of the second kind, and what turns the direction of a line around, have no picture of their own.
_OBEYED |= dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)


class Terminal(Console):
    """A console that shows control characters of texts, and does not send them to a terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not self.is_terminal:
                yield segment
            else:
                yield Segment(segment.text.translate(_OBEYED), segment.style)
