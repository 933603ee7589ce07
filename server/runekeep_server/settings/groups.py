"""Settings that belong together, as groups of their own."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from runekeep_schemas.documents.uris import IdKind, is_safe_id
from runekeep_server.settings.fields import none_if_empty

ENDPOINT_URL = re.compile(r"https?://[^/\s@?#]+(/[^\s@?#]*)?")
"""A URL without user, password and query, in which keys would be logged."""


class SearchSettings(BaseModel):
    """How candidates of the two kinds of search become one ranked list."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    dense_weight: float = Field(
        default=10.0, ge=0, le=1000, description="Weight of nearness in meaning, the cosine of two vectors."
    )
    sparse_weight: float = Field(default=0.3, ge=0, le=1000, description="Weight of the query's words, by BM25.")
    neighbour_decay: float = Field(
        default=0.7,
        ge=0,
        le=1,
        description="What a word of the query is worth that stands one message away, and that times itself for every "
        "further one, up to four. 0: nothing.",
    )
    fact_weight: float = Field(
        default=0.6,
        ge=0,
        le=1000,
        description="Weight of signs that something is a fact: times, names, speaking of oneself, not asking.",
    )
    session_weight: float = Field(
        default=0.3, ge=0, le=1000, description="Weight of how much else was found in the same session."
    )
    usage_weight: float = Field(
        default=0.0, ge=0, le=1000, description="Weight of how often a memory was used. 0: that plays no part."
    )
    recency_weight: float = Field(
        default=0.0, ge=0, le=1000, description="Weight of how new something is. 0: that plays no part."
    )
    recency_days: float = Field(
        default=30.0, gt=0, le=36500, description="Days after which what is new counts half, with recency_weight."
    )
    candidates: int = Field(
        default=200, ge=1, le=2000, description="Hits taken from each of the two rankings before they are merged."
    )


class EmbeddingSettings(BaseModel):
    """The model of the embedders `openai` and `fastembed`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    url: str = Field(
        default="",
        description="`openai`: URL that `/embeddings` is added to, such as `https://api.openai.com/v1`. The texts of "
        "all accounts without an entry in `account_endpoints` are sent there.",
    )
    model: str = Field(default="", max_length=200, description="Name of the model.")
    dimension: int = Field(
        default=0,
        ge=0,
        le=16_000,
        description="Numbers in a vector of the model. The server rejects vectors of another length.",
    )
    query_prefix: str = Field(default="", max_length=1000, description="Prefix for queries, such as `query: `.")
    document_prefix: str = Field(default="", max_length=1000, description="Prefix for stored texts.")
    query_fields: dict[str, Any] = Field(
        default={},
        description='`openai`: extra JSON fields in requests that embed queries, such as `{"input_type": "query"}`.',
    )
    document_fields: dict[str, Any] = Field(
        default={}, description="`openai`: extra JSON fields in requests that embed stored texts."
    )
    max_characters: int = Field(
        default=8000,
        ge=100,
        le=1_000_000,
        description="Characters of a text that the model gets; the rest is left out. A text that the endpoint of "
        "`openai` refuses is shortened further.",
    )
    batch_texts: int = Field(default=32, ge=1, le=2048, description="`openai`: maximum texts per request.")
    batch_bytes: int = Field(
        default=131_072, ge=1024, le=16_777_216, description="`openai`: maximum bytes of texts per request."
    )
    parallel_batches: int = Field(
        default=4,
        ge=1,
        le=256,
        description="`openai`: maximum concurrent requests for each of background work, writes and searches, so up to "
        "three times this number in all.",
    )
    batch_seconds: float = Field(
        default=30.0, gt=0, le=600, description="`openai`: maximum seconds of a request, its retries included."
    )
    query_seconds: float = Field(
        default=2.0,
        gt=0,
        le=60,
        description="`openai`: how long a search waits for its vector. Then it goes by words alone. `fastembed`: how "
        "long texts wait while the model is loaded.",
    )
    path: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        default=None,
        description="`fastembed`: folder with the model's files, such as `model.onnx`, `tokenizer.json` and "
        "`tokenizer_config.json`. Empty: the files come from Hugging Face at the first start.",
    )
    pooling: Literal["mean", "cls", "last_token"] = Field(
        default="mean",
        description="`fastembed`: how the vectors of the tokens become one, for a model in `path` whose name fastembed "
        "does not know.",
    )

    languages: tuple[Annotated[str, Field(pattern="^[a-z]{2,3}$")], ...] = Field(
        default=(),
        description='JSON list of the languages that the model was made for, as codes of ISO 639 such as `["en", '
        '"de"]`. `runekeep doctor` then warns about users who write mostly in another one. Empty: not known.',
    )

    @field_validator("url")
    @classmethod
    def _url_is_web(cls, value: str) -> str:
        if value and not ENDPOINT_URL.fullmatch(value):
            raise ValueError("must be a URL such as https://api.openai.com/v1, without a key: that is embedder_api_key")
        return value


class RerankSettings(BaseModel):
    """The model of the rerankers `endpoint` and `fastembed`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    url: str = Field(
        default="",
        description="`endpoint`: URL that `/rerank` is added to, such as `https://api.jina.ai/v1`. Queries and "
        "candidates of all accounts without an entry in `account_endpoints` are sent there.",
    )
    form: Literal["auto", "jina", "cohere", "tei"] = Field(
        default="auto",
        description="`endpoint`: how it wants its requests. `jina`: Jina, vLLM, llama.cpp. `cohere`: Cohere. `tei`: "
        "Text Embeddings Inference. `auto`: tries them in this order.",
    )
    model: str = Field(
        default="", max_length=200, description="Name of the model. An endpoint with one model may need none."
    )
    fields: dict[str, Any] = Field(
        default={},
        description='`endpoint`: extra JSON fields in requests, such as `{"truncate_prompt_tokens": -1}` for vLLM.',
    )
    candidates: int = Field(
        default=32, ge=2, le=200, description="Number of the best candidates of a search that are reordered."
    )
    max_characters: int = Field(
        default=2000,
        ge=100,
        le=100_000,
        description="Characters of the query, and of a candidate, that the reranker gets; the rest is left out.",
    )
    request_bytes: int = Field(
        default=131_072,
        ge=8192,
        le=16_777_216,
        description="Maximum bytes of texts per search. Candidates beyond them keep their places.",
    )
    parallel_requests: int = Field(
        default=4,
        ge=1,
        le=256,
        description="`endpoint`: maximum concurrent requests. Accounts take turns, and one account gets all but one.",
    )
    seconds: float = Field(
        default=1.0,
        gt=0,
        le=3,
        description="How long a search waits for the reranker. Then it keeps its own order.",
    )
    path: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        default=None,
        description="`fastembed`: folder with the model's files, such as `model.onnx`, `config.json`, `tokenizer.json` "
        "and `tokenizer_config.json`. Empty: the files come from Hugging Face at the first start.",
    )

    @field_validator("url")
    @classmethod
    def _url_is_web(cls, value: str) -> str:
        if value and not ENDPOINT_URL.fullmatch(value):
            raise ValueError("must be a URL such as https://api.jina.ai/v1, without a key: that is reranker_api_key")
        return value


class DeadlineSettings(BaseModel):
    """Deadlines, in seconds, of calls whose caller sets none. The page `docs/reference/methods.md` lists
    the setting of each method."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    call_seconds: float = Field(default=5.0, gt=0, le=3600, description="Calls without a setting below.")
    find_seconds: float = Field(default=10.0, gt=0, le=3600, description="Searches, and calls that read a lot.")
    commit_seconds: float = Field(default=10.0, gt=0, le=3600, description="Commits, and calls that write a lot.")
    delete_user_seconds: float = Field(default=30.0, gt=0, le=3600, description="DeleteUser.")
    erase_data_seconds: float = Field(default=30.0, gt=0, le=3600, description="EraseData.")
    copy_user_seconds: float = Field(default=600.0, gt=0, le=3600, description="CopyUser.")
    rollback_session_seconds: float = Field(default=30.0, gt=0, le=3600, description="RollbackSession.")
    embed_seconds: float = Field(default=30.0, gt=0, le=3600, description="EmbedForJob, ChangeEmbedder.")
    ask_seconds: float = Field(default=120.0, gt=0, le=3600, description="AskMemory.")
    job_input_seconds: float = Field(default=60.0, gt=0, le=3600, description="GetJobInput.")


class TlsSettings(BaseModel):
    """Certificates of the server and of its callers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        default=None,
        description="File with the server's certificate and those between it and the root, in PEM. Empty: no TLS.",
    )
    key: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        default=None, description="File with the key of that certificate, in PEM."
    )
    client_ca: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        default=None,
        description="File with the certificates, in PEM, that callers' certificates must come from; callers without "
        "one are then refused. Empty: callers need no certificate.",
    )
    reload_seconds: float = Field(
        default=10.0, gt=0, le=86_400, description="How often the three files are looked at for new contents."
    )


class MeshRule(BaseModel):
    """What the holder of a certificate may do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: str = Field(min_length=1, max_length=1024)
    """A subject alternative name, URI or DNS; `*` stands for some of what is between two slashes or dots."""
    scope: Literal["user", "account", "admin", "worker", "proxy"]
    account: str = ""
    user: str = ""
    accounts: tuple[str, ...] = ()
    """Of the scope worker: the accounts whose jobs it gets; empty: all."""

    @field_validator("certificate")
    @classmethod
    def _certificate_is_told_apart(cls, value: str) -> str:
        if not re.fullmatch(r"[!-~]+", value):
            raise ValueError("must be a URI or a DNS name, in ASCII without spaces")
        scheme, is_uri, rest = value.partition("://")
        if "*" in (scheme + rest.partition("/")[0] if is_uri else "") or not value.strip("*."):
            raise ValueError("`*` may stand for a part of a path or of a DNS name, not for whose names they are")
        return value

    @model_validator(mode="after")
    def _names_whom_the_scope_needs(self) -> Self:
        for kind, value, scopes in (
            (IdKind.ACCOUNT, self.account, ("user", "account")),
            (IdKind.USER, self.user, ("user",)),
        ):
            if self.scope not in scopes and value:
                raise ValueError(f"the scope {self.scope} has no {kind}; leave it out")
            if self.scope in scopes and not is_safe_id(kind, value):
                raise ValueError(f"the scope {self.scope} needs {kind}, and that must be an id of one")
        if self.accounts and self.scope != "worker":
            raise ValueError(f"the scope {self.scope} has no accounts; leave them out")
        if not all(is_safe_id(IdKind.ACCOUNT, account) for account in self.accounts):
            raise ValueError("accounts must be ids of accounts")
        return self


class MeshSettings(BaseModel):
    """Who callers are, by their certificates or by what a proxy says of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[MeshRule, ...] = Field(
        default=(),
        description="JSON list of `{certificate, scope, account, user, accounts}`; the first rule that fits holds. "
        "`certificate` is a subject alternative name, URI or DNS, in which `*` stands for letters, digits, dashes and "
        "underscores. Scopes are `user` (with account and user), `account` (with account), `admin`, `worker` (with "
        "`accounts`, a list, where it gets the jobs of these accounts alone), and `proxy`, whose metadata say who "
        "calls.",
    )
    trust_loopback: bool = Field(
        default=False,
        description="Whether a proxy on this machine, which calls without TLS on a loopback address, is trusted to say "
        "who calls.",
    )


class LimitSettings(BaseModel):
    """Bounds for each server process, so that no account takes it from the others. 0: none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    connections: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Connections open at a time; fewer where the system allows the process fewer files.",
    )
    connection_idle_seconds: float = Field(
        default=300.0,
        ge=1,
        le=86_400,
        description="A connection without a call is closed after so long. Clients connect anew with their next call.",
    )
    concurrent_calls: int = Field(
        default=1000, ge=0, le=1_000_000, description="Unary calls under way at a time, of all accounts."
    )
    account_calls_per_second: float = Field(
        default=0.0, ge=0, le=1_000_000, description="Calls of one account a second, on average."
    )
    account_burst_seconds: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="Calls that an account did not make are kept for it for so long, and may come at once.",
    )
    account_concurrent_calls: int = Field(
        default=200, ge=0, le=1_000_000, description="Unary calls of one account under way at a time."
    )
    account_streams: int = Field(default=1000, ge=0, le=1_000_000, description="Streams of one account open at a time.")
    request_bytes: int = Field(
        default=1024**3,
        ge=1024**2,
        le=2**50,
        description="Bytes of unary requests and of appends by stream under way, of all accounts; one of the largest "
        "size in any case. While "
        "one arrives it counts as the largest. Further ones wait, and accounts take turns.",
    )
    account_request_bytes: int = Field(
        default=128 * 1024**2,
        ge=1024**2,
        le=2**50,
        description="Of them those of one account; one of the largest size in any case.",
    )
    imports: int = Field(default=16, ge=1, le=1000, description="Imports under way at a time, of all accounts.")
    account_imports: int = Field(
        default=2, ge=1, le=1000, description="Imports of one account under way at a time; further ones wait."
    )
    import_idle_seconds: float = Field(
        default=10.0, gt=0, le=3600, description="An import whose caller sends nothing for so long is given up."
    )
    account_stored_bytes: int = Field(
        default=10 * 1024**3,
        ge=0,
        le=2**62,
        description="Bytes of messages, memories, turns and blobs that one account may store, as far as they are "
        "counted.",
    )
    count_seconds: float = Field(
        default=300.0,
        gt=0,
        le=86_400,
        description="How often what each account has stored is counted, and limits of "
        "accounts that another server changed are read.",
    )
