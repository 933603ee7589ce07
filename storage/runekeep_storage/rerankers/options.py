"""Settings of the reranker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RerankOptions:
    """The settings `rerank.*`, which `runekeep_server.settings` describes, and the key. `seconds`: how long a search
    waits for the reranker. `by_account`: for the reranker `endpoint`, the same options with the endpoint of an account,
    or None if the account has none; all other accounts have that of `url`, or none if it is empty."""

    url: str = ""
    api_key: str = field(default="", repr=False)
    form: str = "auto"
    model: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    candidates: int = 32
    max_characters: int = 2000
    request_bytes: int = 128 * 1024
    parallel_requests: int = 4
    seconds: float = 1.0
    path: Path | None = None
    by_account: Mapping[str, "RerankOptions | None"] = field(default_factory=dict)
