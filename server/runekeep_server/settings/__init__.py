"""The settings of the server.

Values come, strongest first, from command line flags, the environment (`RUNEKEEP_` before the name, `__` between a
group and its member) and a YAML file. `docs/reference/settings.md` is printed from here: `python -m
runekeep_server.settings`.
"""

from runekeep_server.settings.fields import ENV_PREFIX
from runekeep_server.settings.groups import (
    DeadlineSettings,
    LimitSettings,
    MeshRule,
    MeshSettings,
    SearchSettings,
    TlsSettings,
)
from runekeep_server.settings.loading import (
    CONFIG_VARIABLE,
    SettingsError,
    load_settings,
    reference,
    suspicious_variables,
)
from runekeep_server.settings.model import Settings

__all__ = [
    "CONFIG_VARIABLE",
    "ENV_PREFIX",
    "DeadlineSettings",
    "LimitSettings",
    "MeshRule",
    "MeshSettings",
    "SearchSettings",
    "Settings",
    "SettingsError",
    "TlsSettings",
    "load_settings",
    "reference",
    "suspicious_variables",
]
