"""Where settings come from, and how wrong ones are told of."""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource
from pydantic_settings import SettingsError as PydanticSettingsError

from runekeep_common.secret_files import SUFFIX, SecretFileError, read_secret_files
from runekeep_server.settings.account_endpoints import TAG
from runekeep_server.settings.fields import ENV_PREFIX, variable
from runekeep_server.settings.model import BARE_VARIABLES, Settings
from runekeep_server.settings.page import Described, page

_QUOTED = re.compile(r"\s['\"](?![<\\])[^'\"]{2}")

# Not a setting itself: it says where the settings are.
CONFIG_VARIABLE = "RUNEKEEP_CONFIG"


SECRETS = (
    "admin_key",
    "worker_key",
    "store_url",
    "index_api_key",
    "embedder_api_key",
    "next_embedder_api_key",
    "reranker_api_key",
)
"""Settings that may be given by file too: `RUNEKEEP_ADMIN_KEY_FILE` names a file that holds the value."""


class SettingsError(Exception):
    """The settings cannot be used. The message names each setting that is wrong and says what it may be."""


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
    try:
        secrets = read_secret_files(map(variable, SECRETS))
    except SecretFileError as error:
        raise SettingsError(str(error)) from None
    secret_values = {name: secrets[variable(name)] for name in SECRETS if variable(name) in secrets}

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
            bare = {name: value for name, bare in BARE_VARIABLES.items() if (value := os.environ.get(bare))}
            return (
                init_settings,
                env_settings,
                InitSettingsSource(settings_cls, secret_values),
                InitSettingsSource(settings_cls, bare),
                InitSettingsSource(settings_cls, file_values),
            )

    try:
        return Layered(**(overrides or {}))
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(detail) for detail in error.errors(include_url=False))) from None
    except PydanticSettingsError as error:
        # A group or a list given as one variable whose text is no JSON; the text names it, and not the value.
        raise SettingsError(
            f"{error}: the variable must hold JSON. Of a group the members can be set one by one, as in "
            f"{variable('search.dense_weight')}=10."
        ) from None


def suspicious_variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that name no setting but look like one that is misspelled: (variable, the setting's variable).

    Other unknown variables of the prefix are left alone: extractors and clients have theirs, and Kubernetes makes
    some from the names of services.
    """
    known = [variable(name) for name, _ in _leaves(Settings)]
    own = {*known, *(variable(name) + SUFFIX for name in SECRETS), CONFIG_VARIABLE}
    unknown = (name for name in environment if name.startswith(ENV_PREFIX) and name not in own)
    near = ((name, difflib.get_close_matches(name, known, n=1, cutoff=0.9)) for name in sorted(unknown))
    return [(name, matches[0]) for name, matches in near if matches]


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: the settings file cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: a date that there is not. Without the cause, whose text quotes the line, which may hold a key.
        raise SettingsError(f"{path}: the settings file is not valid YAML{_where(error)}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise SettingsError(f"{path}: the settings file must hold `name: value` pairs")
    return values


def _where(error: Exception) -> str:
    """Line, column and kind of a fault in YAML, as far as they are known; without what stands there."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
    # It ends before a name of the file's is quoted; of its signs it quotes single ones.
    return place if problem is None else f"{place}: {_QUOTED.split(problem, maxsplit=1)[0]}"


def _explain(detail: ErrorDetails) -> str:
    name = ".".join(part for part in map(str, detail["loc"]) if not part.startswith(TAG))
    if detail["type"] == "extra_forbidden":
        known = difflib.get_close_matches(name, [leaf for leaf, _ in _leaves(Settings)], n=1, cutoff=0.8)
        return f"{name}: there is no such setting{f'; did you mean {known[0]}?' if known else ''}"
    what = str(detail["ctx"]["error"]) if detail["type"] == "value_error" else detail["msg"]
    if not name:
        # Of several settings together: the text names them.
        return what
    # The place within a list or a mapping is no part of a variable's name.
    setting = next((leaf for leaf, _ in _leaves(Settings) if name.startswith(f"{leaf}.")), name)
    variables = " or ".join(filter(None, (variable(setting), BARE_VARIABLES.get(name))))
    # Never the value: a URL may hold a password.
    return f"{name} ({variables}): {what}"


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
    every = [Described(name, variable(name), section, info) for name, (section, info) in _leaves(Settings)]
    return page(every, CONFIG_VARIABLE, [variable(name) + SUFFIX for name in SECRETS])
