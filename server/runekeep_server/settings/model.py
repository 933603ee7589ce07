"""Every setting of the server, with its bounds and its meaning: the one place where they are written down."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, SecretStr, field_validator, model_validator
from pydantic_core.core_schema import ValidationInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from runekeep_common.addresses import split_address
from runekeep_schemas.session_skills import WHEN_EXTRACTED
from runekeep_server.settings.account_endpoints import EndpointsByAccount, endpoints_of, faults
from runekeep_server.settings.exposure import exposures
from runekeep_server.settings.fields import ENV_PREFIX, named, none_if_empty, setting, split_paths
from runekeep_server.settings.groups import (
    DeadlineSettings,
    EmbeddingSettings,
    LimitSettings,
    MeshSettings,
    RerankSettings,
    SearchSettings,
    TlsSettings,
)
from runekeep_storage.embedders import embedding_needs

BARE_VARIABLES = {
    "memory_reconcile_enabled": "MEMORY_RECONCILE_ENABLED",
    "long_memories_log": "LONG_MEMORIES_LOG",
}
"""Variables without the prefix that name a setting too; the one with the prefix is stronger."""


EmbedderName = Literal["minilm", "bilingual", "openai", "fastembed", "minilm+openai", "minilm+fastembed", "none"]


class Settings(BaseSettings):
    """The server's settings, checked. Times are in seconds. Make one with `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        # Rules between two settings must also see the defaults.
        validate_default=True,
        allow_inf_nan=False,
        # An input may be a key, or a URL with a password.
        hide_input_in_errors=True,
    )

    identity_mode: Literal["development", "keys", "mesh"] = setting(
        "Calls",
        "development",
        "How callers are known. `development` believes the metadata `x-runekeep-account` and `x-runekeep-user`, so it "
        "is refused on any but a loopback address. `keys`: by API keys, on others than loopback addresses with TLS "
        "only. `mesh`: by client certificates, or by what a trusted proxy says.",
    )
    address: str = setting("Calls", "127.0.0.1:7433", "`host:port` to listen on; port 0 takes a free one.")
    internal_address: str = setting(
        "Calls",
        "",
        "`host:port` for extractors and operators. If it is set, only this address serves ExtractorService and "
        "AdminService, and `address`, which users reach, does not. If it is empty, `address` serves everything.",
    )
    max_message_bytes: int = setting(
        "Calls",
        4 * 1024 * 1024,
        "Bytes of the largest request accepted and of the largest answer sent. Answers may always have 4 MiB. A large "
        "request delays the calls of others while it is stored.",
        ge=64 * 1024,
        le=1024**3,
    )
    reflection: bool | None = setting(
        "Calls",
        None,
        "Whether tools may ask the server for its contract, without credentials. Empty: in `development` alone.",
    )
    drain_seconds: float = setting(
        "Calls", 20.0, "How long open calls and applies may take to end after SIGTERM.", ge=0, le=3600
    )
    deadlines: DeadlineSettings = setting("Deadlines", DeadlineSettings(), "")
    tls: TlsSettings = setting("TLS", TlsSettings(), "")
    admin_key: SecretStr = setting(
        "Identity",
        SecretStr(""),
        "In the mode `keys` a key with the scope admin, to make the others with: at least 32 characters. Empty: none.",
    )
    worker_key: SecretStr = setting(
        "Identity",
        SecretStr(""),
        "In the mode `keys` a key with the scope worker, for extractors: at least 32 characters. Empty: none.",
    )
    key_check_seconds: float = setting(
        "Identity",
        5.0,
        "How long a server believes what it last read of a key: so late it learns of one that another server revoked.",
        gt=0,
        le=3600,
    )
    mesh: MeshSettings = setting("Identity", MeshSettings(), "")
    audit_retention_days: int = setting(
        "Identity", 365, "Days after which entries of the audit log are taken away.", ge=1, le=36_500
    )
    limits: LimitSettings = setting("Limits", LimitSettings(), "")
    metrics_address: str = setting(
        "Telemetry",
        "",
        "`host:port` on which Prometheus finds the metrics, at `/metrics`, and HTTP probes the health, at `/healthz`. "
        "Empty: nowhere. Traces are switched on by OpenTelemetry's own variables, such as "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`.",
    )

    data_dir: Path = setting("Storage", Path("runekeep-data"), "Directory of everything that is kept on this machine.")
    store_url: str = setting(
        "Storage",
        "",
        "URL of the relational store: `postgresql://user:password@host/database`, which several servers may share when "
        "they share an `index_url` and a `blob_dir` too, or `sqlite:///path/of/file.db`. Empty: SQLite in `data_dir`.",
        repr=False,
    )
    store_wait_seconds: float = setting(
        "Storage",
        60.0,
        "How long a start waits for a PostgreSQL that does not answer, as where containers start in any order. Then "
        "the server ends with status 75.",
        ge=0,
        le=86_400,
    )
    blob_dir: Annotated[Path | None, BeforeValidator(none_if_empty)] = setting(
        "Storage",
        None,
        "Directory of large tool outputs and of memory buckets, which servers on one store share, as on NFS. Empty: "
        "under `data_dir`.",
    )
    blob_url: str = setting(
        "Storage",
        "",
        "URL of an object store for them in place of a directory: `s3://bucket/prefix`, `gs://bucket/prefix` or "
        "`az://container/prefix`; its keys come from the variables of that store, such as `AWS_ACCESS_KEY_ID`.",
    )
    types_dirs: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(split_paths)] = setting(
        "Storage",
        (),
        "Directories with memory types of your own; a type of the same name replaces a built-in one, and a later "
        "directory an earlier one. In the environment they are separated like those of PATH.",
    )
    tool_output_inline_chars: int = setting(
        "Storage",
        20_000,
        "A tool's output with more characters is stored apart from its message and previewed there.",
        ge=1000,
        le=2_097_152,
    )

    accept_data_loss: str = setting(
        "Storage",
        "",
        "Code of a loss that a start refused, to go on without what was lost; also `--accept-data-loss`. It names that "
        "loss alone, and is written to the audit log.",
    )
    erasure_purge_seconds: float = setting(
        "Storage",
        60.0,
        "Least time from one purge to the next, with which store and index let go of erased data; rather longer where "
        "a purge takes long.",
        gt=0,
        le=86_400,
    )
    start_check_seconds: float = setting(
        "Storage",
        5.0,
        "How long a start waits for the quick check of SQLite's file; that of a larger file goes on while the server "
        "serves.",
        ge=0,
        le=600,
    )
    data_check_seconds: float = setting(
        "Storage",
        86_400.0,
        "How often a server reads all blobs, and SQLite's file in full, to find what is damaged; first ten minutes "
        "after its start, or sooner. 0: never.",
        ge=0,
        le=31_536_000,
    )
    blob_check_bytes_per_second: float = setting(
        "Storage", 4_000_000.0, "Most bytes of blobs that are read in a second for it.", ge=1000, le=1e12
    )
    max_import_bytes: int = setting(
        "Storage",
        16 * 1024**3,
        "Largest import: bytes that come out of its archive.",
        ge=1024**2,
        le=2**50,
    )

    index_url: str = setting(
        "Search",
        "",
        "URL of a Qdrant server (`http`, `https`, `grpc`, or `grpcs` for gRPC over TLS), or those of several nodes of "
        "one cluster, separated by commas: a call goes to one that answers. Empty: the embedded index in `data_dir`.",
    )
    index_api_key: SecretStr = setting("Search", SecretStr(""), "API key for that Qdrant server.")
    index_datatype: Literal["float32", "float16", "int8"] = setting(
        "Search",
        "float32",
        "How the index holds the numbers of dense vectors: `float16` takes half the room and `int8` a quarter; `int8` "
        "on a Qdrant server needs Qdrant 1.20. The store keeps float32. After a change, rebuild the index.",
    )
    index_check_seconds: float = setting(
        "Search", 86_400.0, "How often the points of each user are compared with the store, and mended.", gt=0
    )
    embedder: EmbedderName = setting(
        "Search",
        "minilm",
        "What turns text into vectors. `minilm`: English. `bilingual`: 15 more languages, Chinese among them; needs "
        "the extra `runekeep[bilingual]`. `openai`: an endpoint that speaks OpenAI's embeddings API, see `embedding`. "
        "`fastembed`: an ONNX model by name or from a folder, see there too; needs the extra `runekeep[fastembed]`. "
        "`minilm+openai` and `minilm+fastembed`: the mean of both. `none`: search by words alone.",
    )
    embedder_threads: int = setting("Search", 2, "Threads that the embedder computes with.", ge=1, le=64)
    embedder_api_key: SecretStr = setting("Search", SecretStr(""), "Key for the endpoint of the embedder `openai`.")
    embedding: EmbeddingSettings = setting("Embedding models", EmbeddingSettings(), "")
    next_embedder_api_key: SecretStr = setting("Search", SecretStr(""), "Key for the endpoint of `next_embedding`.")
    next_embedding: EmbeddingSettings = setting("Embedding model to change to", EmbeddingSettings(), "")
    reranker: Literal["none", "endpoint", "fastembed"] = setting(
        "Search",
        "none",
        "What reorders the best candidates of a search. `endpoint`: a `/rerank` endpoint, see `rerank`. `fastembed`: a "
        "cross-encoder by name or from a folder, see there too; needs the extra `runekeep[fastembed]`, computes with "
        "`embedder_threads`.",
    )
    reranker_api_key: SecretStr = setting("Search", SecretStr(""), "Key for the endpoint of the reranker.")
    rerank: RerankSettings = setting("Reranking", RerankSettings(), "")
    account_endpoints: EndpointsByAccount = setting(
        "Endpoints of accounts",
        {},
        "JSON object, or a mapping in the YAML file, with accounts whose texts go to endpoints of their own: "
        '`{"acme": {"embedding": {"url": "https://...", "model": "...", "key_file": "/run/secrets/acme"}, "rerank": '
        '"none"}}`. Each entry says for `embedding`, `next_embedding` and `rerank`, as far as the server uses them, an '
        "endpoint, or `default` for that of all other accounts; `rerank` may be `none`. An endpoint has a `url`, and "
        "`key_file` or `key_env`, the name of a variable. That of an embedder has the `model` of the setting of its "
        "kind, that of `rerank` may have a `model` and a `form`.",
    )
    relevance_file: Annotated[Path | None, BeforeValidator(none_if_empty)] = setting(
        "Search",
        None,
        "JSON file with the relevance curves of further embedders, as `make bench-quality` writes it, read when the "
        "server starts. A curve of it replaces the built-in one of the same model. Empty: the built-in curves alone.",
    )
    search: SearchSettings = setting("Search ranking", SearchSettings(), "")

    lease_seconds: float = setting(
        "Jobs",
        60.0,
        "How long a worker holds a job, and an import its user, after their last sign of life.",
        gt=0,
        le=3600,
    )
    heartbeat_seconds: float = setting(
        "Jobs", 15.0, "How often workers are asked to renew; at most half of `lease_seconds`.", gt=0, le=1800
    )
    first_lease_seconds: float = setting(
        "Jobs", 10.0, "The lease of a job until its worker is heard of first; at most `lease_seconds`.", gt=0, le=3600
    )
    attempt_seconds: float = setting("Jobs", 600.0, "Time for one attempt; it is not renewed.", gt=0, le=86_400)
    max_attempts: int = setting("Jobs", 5, "Attempts that count before a job is given up.", ge=1, le=1000)
    max_lost_leases: int = setting(
        "Jobs",
        3,
        "Workers that may lose a job before it is given up: different ones, where there are so many.",
        ge=1,
        le=1000,
    )
    worker_max_jobs: int = setting(
        "Jobs",
        256,
        "Jobs that workers with the same credentials hold at a time, all together. A fleet that does more at once "
        "needs a larger one, or several keys.",
        ge=1,
        le=1_000_000,
    )
    max_conflicts: int = setting(
        "Jobs", 5, "Times that a job is done again because memories changed under it.", ge=1, le=1000
    )
    backoff_first_seconds: float = setting("Jobs", 2.0, "Longest wait after the first failure; it doubles.", gt=0)
    backoff_max_seconds: float = setting(
        "Jobs", 300.0, "Longest wait between two attempts; at least `backoff_first_seconds`.", gt=0, le=86_400
    )
    job_max_age_seconds: float = setting(
        "Jobs", 86_400.0, "Age at which a job that still waits for a model is given up.", gt=0
    )
    poll_seconds: float = setting("Jobs", 1.0, "How often the store is asked for work that nobody told of.", gt=0)
    max_open_commits_per_user: int = setting(
        "Jobs", 1000, "Open commits of one user before further ones are refused.", ge=1, le=1_000_000
    )
    max_open_turn_tasks_per_user: int = setting(
        "Jobs",
        1000,
        "Open tasks of one user that find out what turns said, and as many that fold turns into buckets, before "
        "further ones are refused.",
        ge=1,
        le=1_000_000,
    )
    max_open_questions_per_user: int = setting(
        "Jobs",
        10,
        "Questions of one user under way at a time, before further ones are refused.",
        ge=1,
        le=1000,
    )
    task_retention_days: int = setting(
        "Jobs",
        30,
        "Days after which a task that has ended is forgotten, with its events; what it made stays.",
        ge=1,
        le=36_500,
    )
    withhold_secrets: bool = setting(
        "Jobs",
        True,
        "Whether what looks like a key, a token, a password or a card number is taken out of memories, of turn memory "
        "and of the searched form of messages before they are written; a memory that a caller writes by hand is "
        "refused.",
    )
    review_superseded: bool = setting(
        "Jobs",
        False,
        "Whether a memory that a new one supersedes is kept for review: the result of the task names it under "
        "`skipped`. Otherwise the commit deletes it.",
    )
    session_skills: bool = setting(
        "Jobs",
        False,
        f"Whether session skills are enabled if the policy does not say. They are extracted only if {WHEN_EXTRACTED}.",
    )

    memory_reconcile_enabled: bool = setting(
        "Turn memory",
        True,
        "Whether turns are folded into memory buckets, and buckets are shown. Also read from "
        f"`{BARE_VARIABLES['memory_reconcile_enabled']}`.",
    )
    long_memories_log: bool = setting(
        "Turn memory",
        False,
        "Whether the log of turns is all the memory that is wanted of a conversation: it switches buckets off, as "
        f"`memory_reconcile_enabled` does. Also read from `{BARE_VARIABLES['long_memories_log']}`.",
    )

    commit_token_budget: int = setting(
        "Costs",
        0,
        "Tokens, input and output together, that all attempts at one commit may spend. 0: any number.",
        ge=0,
        le=10**15,
    )
    account_daily_token_budget: int = setting(
        "Costs",
        0,
        "Tokens that the extraction of all commits of one account may spend in a UTC day. 0: any number.",
        ge=0,
        le=10**15,
    )
    prices_file: Annotated[Path | None, BeforeValidator(none_if_empty)] = setting(
        "Costs",
        None,
        "YAML file with the prices of models, in US dollars per million tokens, read when the server starts. Empty: "
        "usage shows no money.",
    )
    record_answers: bool = setting(
        "Costs",
        True,
        "Whether what models answered is kept with the task; which calls were made is kept in any case.",
    )

    log_level: Literal["debug", "info", "warning", "error"] = setting("Logs", "info", "Least level that is logged.")
    log_format: Literal["json", "console"] = setting("Logs", "json", "One JSON object a line, or lines for people.")

    @field_validator("address", "internal_address", "metrics_address")
    @classmethod
    def _address_has_a_port(cls, value: str, info: ValidationInfo) -> str:
        if value or info.field_name == "address":
            split_address(value)
        return value

    @field_validator("store_url")
    @classmethod
    def _store_url_has_scheme(cls, value: str) -> str:
        if value and not re.match(r"[a-z][a-z0-9+]*://", value):
            raise ValueError("must be empty or a URL such as postgresql://user:password@host/database")
        return value

    @field_validator("blob_url")
    @classmethod
    def _blob_url_stands_alone(cls, value: str, info: ValidationInfo) -> str:
        if value and not re.match(r"[a-z][a-z0-9+]*://[^/]", value):
            raise ValueError("must be empty or a URL such as s3://bucket/prefix")
        if value and info.data.get("blob_dir") is not None:
            raise ValueError("and blob_dir name two places for the same blobs; leave one of them empty")
        return value

    @field_validator("index_url")
    @classmethod
    def _index_url_is_qdrant(cls, value: str) -> str:
        if value and not re.fullmatch(r"(https?|grpcs?)://[^/,\s][^,\s]*(, *(https?|grpcs?)://[^/,\s][^,\s]*)*", value):
            raise ValueError(
                "must be empty, or URLs that begin with http://, https://, grpc:// or grpcs://, separated by commas"
            )
        return value

    @property
    def shows_contract(self) -> bool:
        return self.identity_mode == "development" if self.reflection is None else self.reflection

    @property
    def buckets_enabled(self) -> bool:
        return self.memory_reconcile_enabled and not self.long_memories_log

    @field_validator("heartbeat_seconds", "first_lease_seconds")
    @classmethod
    def _within_lease(cls, value: float, info: ValidationInfo) -> float:
        lease = info.data.get("lease_seconds")
        if lease is not None:
            # Half, so that one heartbeat that is late or lost does not cost the lease.
            most = lease / 2 if info.field_name == "heartbeat_seconds" else lease
            if value > most:
                raise ValueError(f"must be at most {most:g} while lease_seconds is {lease:g}")
        return value

    @field_validator("backoff_max_seconds")
    @classmethod
    def _backoff_grows(cls, value: float, info: ValidationInfo) -> float:
        first = info.data.get("backoff_first_seconds")
        if first is not None and value < first:
            raise ValueError(f"must be at least backoff_first_seconds, which is {first:g}")
        return value

    @model_validator(mode="after")
    def _embedder_is_described(self) -> Self:
        needs = embedding_needs(self.embedder)
        missing = [named(f"embedding.{name}") for name in needs if not getattr(self.embedding, name)]
        if missing:
            raise ValueError(f"{' and '.join(missing)}: the embedder `{self.embedder}` needs a value")
        return self

    @model_validator(mode="after")
    def _reranker_is_described(self) -> Self:
        name = {"endpoint": "url", "fastembed": "model"}.get(self.reranker)
        if name == "url" and any(endpoints_of(self.account_endpoints, "rerank").values()):
            # Accounts without an entry may have none.
            return self
        if name is not None and not getattr(self.rerank, name):
            raise ValueError(f"{named(f'rerank.{name}')}: the reranker `{self.reranker}` needs a value")
        return self

    @model_validator(mode="after")
    def _accounts_have_their_endpoints(self) -> Self:
        accounts = self.account_endpoints
        urls = {
            "embedding": self.embedding.url,
            "next_embedding": self.next_embedding.url,
            "rerank": self.rerank.url if self.reranker == "endpoint" else "",
        }
        used = {"rerank"} if self.reranker == "endpoint" else set()
        if "openai" in self.embedder.split("+"):
            used.add("embedding")
        if self.next_embedding.url:
            used.add("next_embedding")
        models = {"embedding": self.embedding.model, "next_embedding": self.next_embedding.model}
        if found := list(faults(accounts, urls, models, used)):
            raise ValueError("\n".join(f"{named('account_endpoints')}: {what}" for what in found))
        return self

    @model_validator(mode="after")
    def _exposes_nothing(self) -> Self:
        if found := list(exposures(self)):
            raise ValueError("\n".join(f"{named(name)}: {what}" for name, what in found))
        return self
