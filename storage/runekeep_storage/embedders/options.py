"""Settings of the embedders whose model is chosen by the operator."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from runekeep_storage.embedders.text_form import TextForm

_NEEDS: Final[Mapping[str, Sequence[str]]] = {
    "openai": ("url", "model", "dimension"),
    "fastembed": ("model", "dimension"),
}


def embedding_needs(embedder: str) -> list[str]:
    """Returns the options that an embedder cannot do without, such as `minilm+openai`; none for a built-in one."""
    return [option for part in embedder.split("+") for option in _NEEDS.get(part, ())]


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """The settings `embedding.*`, which `runekeep_server.settings` describes, and the key. Times are in seconds.
    `check_file`: see `known_vector`. `by_account`: for the embedder `openai`, the same options with the endpoint of an
    account; all other accounts have that of `url`."""

    url: str = ""
    api_key: str = field(default="", repr=False)
    model: str = ""
    dimension: int = 0
    query_prefix: str = ""
    document_prefix: str = ""
    query_fields: Mapping[str, Any] = field(default_factory=dict)
    document_fields: Mapping[str, Any] = field(default_factory=dict)
    max_characters: int = 8000
    batch_texts: int = 32
    batch_bytes: int = 128 * 1024
    parallel_batches: int = 4
    batch_seconds: float = 30.0
    query_seconds: float = 2.0
    path: Path | None = None
    pooling: str = "mean"
    languages: tuple[str, ...] = ()
    check_file: Path | None = None
    by_account: Mapping[str, "EmbeddingOptions"] = field(default_factory=dict)

    def lacks(self, embedder: str) -> list[str]:
        """Returns the options without a value that the embedder cannot do without."""
        return [need for need in embedding_needs(embedder) if not getattr(self, need)]

    @property
    def form(self) -> TextForm:
        """How the model wants its texts."""
        return TextForm(
            self.query_prefix,
            self.document_prefix,
            separates_queries=self.query_fields != self.document_fields,
            max_characters=self.max_characters,
        )

    def identity(self, embedder: str) -> str:
        """Returns the name of the vectors, see `Embedder.model`. The address is not part of it, so that the same model
        may move to another server."""
        shaping = [self.query_prefix, self.document_prefix, self.query_fields, self.document_fields]
        if self.pooling != "mean":
            shaping.append(self.pooling)
        name = f"{embedder}/{self.model}"
        if not any(shaping):
            return name
        return f"{name}+{hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:8]}"
