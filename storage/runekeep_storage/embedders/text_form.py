"""How a model wants its texts. Imports little: the index process loads it too."""

from dataclasses import dataclass
from hashlib import blake2b

from runekeep_storage.database import Space


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a model wants its texts. `separates_queries`: a query has another vector than the same text as a document,
    even if the prefixes are the same. `max_characters`: length to which texts are cut; None for no limit."""

    query_prefix: str = ""
    document_prefix: str = ""
    separates_queries: bool = False
    max_characters: int | None = None

    def apply(self, text: str, *, query: bool) -> str:
        """Returns the text as the model reads it. White space is normalized, because models treat it differently, and
        texts with one cache key must have one vector."""
        prefix = self.query_prefix if query else self.document_prefix
        return prefix + " ".join(text.split())[: self.max_characters]

    def cache_key(self, space: Space | None, text: str, *, query: bool) -> bytes | None:
        """Returns the cache key of a text that `apply` returned; None without a space: such texts are not cached."""
        if space is None:
            return None
        kind = "query" if query and self.separates_queries else ""
        owned = "\0".join((space.account, space.user, kind, text))
        return blake2b(owned.encode("utf-8", errors="replace"), digest_size=16).digest()
