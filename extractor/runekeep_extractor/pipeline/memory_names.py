"""Compares the names of memories."""

import re
from typing import Final

from runekeep_schemas.documents.merge import split_words

_BRACKETS: Final = re.compile(r"[(（][^()（）]*[)）]")


def name_words(name: str) -> list[str]:
    """Returns the words of a name in lower case, without those in brackets, which only make it clear."""
    return split_words(_BRACKETS.sub(" ", name).casefold())
