"""The section of the handbook about errors, to which pages of errors lead."""

import re
from functools import cache
from pathlib import Path

from markupsafe import Markup
from starlette.responses import Response

from runekeep.studio.http.visit import Visit
from runekeep.studio.rendering.markdown import markdown

_PLACES = (
    # Of an installed wheel, and of a checkout.
    Path(__file__).parents[1] / "handbook" / "errors.md",
    Path(__file__).parents[3] / "docs" / "operate" / "errors.md",
)


async def handbook(visit: Visit) -> Response:
    return visit.render("handbook.html", {"sections": _sections()})


@cache
def _sections() -> list[tuple[str, Markup]]:
    """Returns the sections as (title, HTML); the first has no title."""
    text = next(place for place in _PLACES if place.is_file()).read_text(encoding="utf-8")
    first, *others = re.split(r"^## ", text.partition("\n")[2], flags=re.MULTILINE)
    found = [("", markdown(first))]
    for one in others:
        title, _, body = one.partition("\n")
        found.append((title.strip(), markdown(body)))
    return found
