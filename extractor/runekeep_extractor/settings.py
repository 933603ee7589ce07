"""Settings of an extractor process, from the environment.

`python -m runekeep_extractor.settings` prints them as Markdown; docs/reference/extractor-settings.md holds that text.
"""

import os
import socket
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import AliasChoices, BaseModel, Field, SecretStr
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from runekeep.transport.transport import Names
from runekeep_common.secret_files import SUFFIX, read_secret_files

_PREFIX = "RUNEKEEP_EXTRACTOR_"

NAMES = Names(
    address=_PREFIX + "SERVER",
    api_key=_PREFIX + "API_KEY",
    ca_file=_PREFIX + "CA_FILE",
    cert_file=_PREFIX + "CERT_FILE",
    key_file=_PREFIX + "KEY_FILE",
)
"""What messages call the settings that say how the server is reached."""

_SECRETS = (_PREFIX + "API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY")
"""May be given by file too: the variable with `_FILE` behind it names a file that holds the value."""

_CLAUDE = "claude-sonnet-5-5"
_DEFAULT_MODEL = f"Empty: `{_PREFIX}MODEL`."

Switch = Literal["auto", "on", "off"]
EngineName = Literal["offline", "anthropic", "openai"]


class ModelSettings(BaseSettings):
    """The settings of an engine with a model that do not depend on the provider."""

    model_config = SettingsConfigDict(populate_by_name=True, extra="forbid", env_ignore_empty=True)

    key_variable: ClassVar[str]
    url_variable: ClassVar[str]

    api_key: SecretStr | None = Field(default=None, exclude=True)
    base_url: str | None = Field(default=None, exclude=True)
    model: str = Field(
        default="",
        validation_alias=AliasChoices(_PREFIX + "MODEL"),
        description="Model that reads the conversation and writes the operations, by its name at the server. Empty: "
        f"`{_CLAUDE}` with the engine `anthropic`; the engine `openai` needs a name.",
    )
    model_dedup: str = Field(
        default="",
        validation_alias=AliasChoices(_PREFIX + "MODEL_DEDUP"),
        description=f"Model that compares new memories with existing ones. {_DEFAULT_MODEL}",
    )
    model_fingerprint: str = Field(
        default="",
        validation_alias=AliasChoices(_PREFIX + "MODEL_FINGERPRINT"),
        description=f"Model that writes the fingerprint of a turn: what it said. {_DEFAULT_MODEL}",
    )
    model_buckets: str = Field(
        default="",
        validation_alias=AliasChoices(_PREFIX + "MODEL_BUCKETS"),
        description=f"Model that folds turns into buckets. {_DEFAULT_MODEL}",
    )
    model_repair: str = Field(
        default="",
        validation_alias=AliasChoices(_PREFIX + "MODEL_REPAIR"),
        description=f"Model that repairs refused operations. {_DEFAULT_MODEL}",
    )
    model_images: str = Field(
        default="",
        validation_alias=AliasChoices(_PREFIX + "MODEL_IMAGES"),
        description=f"Model that describes images. {_DEFAULT_MODEL}",
    )
    images: int = Field(
        default=20,
        ge=0,
        le=100,
        validation_alias=AliasChoices(_PREFIX + "IMAGES"),
        description="Maximum images without a caption that are described for one commit; 0: none. The model server "
        "fetches those with an https address.",
    )
    max_tokens: int = Field(
        default=16_000,
        ge=256,
        le=21_000,
        validation_alias=AliasChoices(_PREFIX + "MAX_TOKENS"),
        description="Maximum tokens of one answer of the model.",
    )
    timeout: float = Field(
        default=120.0,
        gt=0,
        validation_alias=AliasChoices(_PREFIX + "MODEL_TIMEOUT"),
        description="Seconds without a piece of its answer after which a call of the model is given up, and counted "
        "with all that it may have cost; well under the time of one attempt.",
    )
    structured_output: Switch = Field(
        default="auto",
        validation_alias=AliasChoices(_PREFIX + "STRUCTURED_OUTPUT"),
        description="Whether the server holds answers to a JSON schema: `on`, `off`, or `auto` to find out.",
    )
    tools: Switch = Field(
        default="auto",
        validation_alias=AliasChoices(_PREFIX + "TOOLS"),
        description="Whether the server takes tool definitions: `on`, `off`, or `auto` to find out.",
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return _with_file(settings_cls, cls.key_variable, cls.key_variable, named)

    def model_for(self, phase: str) -> str:
        """The model whose answers are counted under this phase."""
        chosen = {
            "dedup": self.model_dedup,
            "fingerprint": self.model_fingerprint,
            "buckets": self.model_buckets,
            "repair": self.model_repair,
            "images": self.model_images,
        }
        return chosen.get(phase, "") or self.model

    @property
    def configured(self) -> bool:
        """Whether somebody said where a model is to be had."""
        return self.api_key is not None or self.base_url is not None


class AnthropicSettings(ModelSettings):
    """The settings of the engine `anthropic`, which calls the Messages API."""

    key_variable = "ANTHROPIC_API_KEY"
    url_variable = "ANTHROPIC_BASE_URL"

    api_key: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices(key_variable),
        description="Key of the Messages API. Servers of one's own often need none; then the base URL suffices.",
    )
    base_url: str | None = Field(
        default=None,
        validation_alias=AliasChoices(url_variable),
        description="Address of the Messages API. Empty: Anthropic's own.",
    )
    model: str = Field(default=_CLAUDE, min_length=1, validation_alias=AliasChoices(_PREFIX + "MODEL"), exclude=True)


class OpenAISettings(ModelSettings):
    """The settings of the engine `openai`, which calls the Chat Completions API."""

    key_variable = "OPENAI_API_KEY"
    url_variable = "OPENAI_BASE_URL"

    api_key: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices(key_variable),
        description="Key of the Chat Completions API. Your own servers often need none; then the base URL suffices.",
    )
    base_url: str | None = Field(
        default=None,
        validation_alias=AliasChoices(url_variable),
        description="Address of the Chat Completions API with its `/v1`, for example `http://127.0.0.1:11434/v1`. "
        "Empty: OpenAI's own.",
    )


class ExtractorSettings(BaseSettings):
    """How the process works, whatever its engine."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", env_ignore_empty=True)

    server: str = Field(
        default="127.0.0.1:7433",
        min_length=1,
        description="Address of the server: `host:port`, or `https://host:port` over TLS; `dns:///host:port` for all "
        "servers behind a name.",
    )
    api_key: SecretStr | None = Field(
        default=None,
        description="Key of the scope worker, for servers in the mode `keys`. It is sent over TLS, and without it to "
        "this machine only.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="File with the certificate, in PEM, of the authority that the server's comes from; with it "
        "`host:port` is TLS too. Empty: the authorities that the system trusts.",
    )
    cert_file: Path | None = Field(
        default=None,
        description="File with the worker's own certificate, in PEM, for servers that ask callers for one.",
    )
    key_file: Path | None = Field(
        default=None,
        description="File with the key of that certificate. All three files may be renewed while it runs.",
    )
    worker_id: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}"[-128:],
        min_length=1,
        max_length=128,
        description="Stable name of this worker, for people and metrics. Empty: host name and process id.",
    )
    concurrency: int = Field(default=4, ge=1, le=1000, description="Jobs that are worked on side by side.")
    engine: EngineName | None = Field(
        default=None,
        description="`offline`, `anthropic` or `openai`. Empty: `anthropic` where its key or base URL is set, else "
        "`offline`.",
    )
    grace: float = Field(
        default=20.0,
        ge=0,
        description="Seconds that running jobs get after SIGTERM or SIGINT before they are given back.",
    )
    stall_timeout: float = Field(
        default=300.0,
        gt=0,
        description="Seconds without progress after which a job's lease is not renewed any more. A model call may take "
        "its own timeout on top.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is logged."
    )
    metrics_address: str = Field(
        default="",
        description="`host:port` on which Prometheus finds the metrics, at `/metrics`, and HTTP probes the health, at "
        "`/healthz`. Empty: nowhere. Traces are switched on by OpenTelemetry's own variables, such as "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`.",
    )
    anthropic: AnthropicSettings = Field(default_factory=AnthropicSettings, exclude=True)
    openai: OpenAISettings = Field(default_factory=OpenAISettings, exclude=True)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return _with_file(settings_cls, "api_key", _PREFIX + "API_KEY", named)

    @property
    def chosen_engine(self) -> EngineName:
        """The engine asked for, else the one that the environment allows."""
        if self.engine is not None:
            return self.engine
        # A key of OpenAI is in many environments: conversations go there only if the engine is named.
        return "anthropic" if self.anthropic.configured else "offline"

    @property
    def models(self) -> ModelSettings | None:
        """The settings of the chosen engine; None if it asks no model."""
        match self.chosen_engine:
            case "anthropic":
                return self.anthropic
            case "openai":
                return self.openai
        return None


def _with_file(
    settings: type[BaseSettings], field: str, variable: str, sources: dict[str, PydanticBaseSettingsSource]
) -> tuple[PydanticBaseSettingsSource, ...]:
    """Returns options, then the environment, then the file that `variable` with `_FILE` names. Raises
    SecretFileError."""
    read = read_secret_files([variable])
    secrets = {field: read[variable]} if read else {}
    return sources["init_settings"], sources["env_settings"], InitSettingsSource(settings, secrets)


def to_markdown() -> str:
    """Every setting with its default and meaning."""
    lines = [
        "# Settings of the extractor",
        "",
        "Written by `python -m runekeep_extractor.settings`. Options of the command line go before the environment.",
        "An empty variable counts as one that is not set. A key may be in a file of its own, which "
        f"{', '.join(f'`{name}{SUFFIX}`' for name in _SECRETS)} names.",
        "The engines `anthropic` and `openai` share the settings of the last section; `offline` uses no model.",
    ]
    sections: tuple[tuple[str, type[BaseModel]], ...] = (
        ("Process", ExtractorSettings),
        ("Engine `anthropic`", AnthropicSettings),
        ("Engine `openai`", OpenAISettings),
        ("Models, for both engines", ModelSettings),
    )
    for title, model in sections:
        lines += ["", f"## {title}", "", "| Variable | Default | Meaning |", "|---|---|---|"]
        lines += _rows(model)
    return "\n".join(lines) + "\n"


def _rows(model: type[BaseModel]) -> list[str]:
    rows = []
    inherited = ModelSettings.__annotations__ if model is not ModelSettings else {}
    for name, field in model.model_fields.items():
        if field.exclude or (name in inherited and name not in model.__annotations__):
            continue
        if not field.description:
            raise ValueError(f"setting {name} has no description")
        alias = field.validation_alias
        variable = str(alias.choices[0]) if isinstance(alias, AliasChoices) else _PREFIX + name.upper()
        default = "" if field.default_factory is not None or field.default is None else f"`{field.default}`"
        rows.append(f"| `{variable}` | {default} | {field.description} |")
    return rows


if __name__ == "__main__":
    print(to_markdown(), end="")
