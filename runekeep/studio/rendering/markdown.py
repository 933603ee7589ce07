"""Markdown of users and models as HTML that can run nothing and loads nothing."""

from urllib.parse import quote

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup

MAX_CHARACTERS = 60_000
"""Of a text on a page; the whole is behind a link."""

_TAGS = set(
    "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split()
)
# Images are off: to load one tells its server who reads.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def markdown(text: str) -> Markup:
    """Returns sanitised HTML. Links to documents of the space lead to their pages."""
    return Markup(
        nh3.clean(
            _PARSER.render(text[:MAX_CHARACTERS]),
            tags=_TAGS,
            attributes={"a": {"href"}, "ol": {"start"}},
            attribute_filter=_inside,
            url_schemes={"http", "https", "mailto", "viking"},
            link_rel="noopener noreferrer nofollow",
        )
    )


def _inside(tag: str, attribute: str, value: str) -> str | None:
    if attribute == "href" and value.startswith("viking://"):
        return f"/memory?uri={quote(value, safe='')}"
    # A relative link would lead to a page of the studio that the text chose.
    if attribute == "href" and not value.startswith(("http://", "https://", "mailto:")):
        return None
    return value
