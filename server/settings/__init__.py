"""The settings of the server.

Values come, strongest first, from command line flags, the environment (`RUNEKEEP_` before the name, `__` between a
group and its member) and a YAML file. `docs/settings.md` is printed from here: `python -m server.settings`.
"""

from server.settings.fields import ENV_PREFIX
from server.settings.groups import (
    DeadlineSettings,
    LimitSettings,
    MeshRule,
    MeshSettings,
    SearchSettings,
    TlsSettings,
)
from server.settings.loading import CONFIG_VARIABLE, SettingsError, load_settings, reference, suspicious_variables
from server.settings.model import Settings

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
