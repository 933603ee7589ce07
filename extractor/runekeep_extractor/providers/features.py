"""Tracks the features that a model behind a server supports: set by a switch, or found by a probe.

An error's text may quote the conversation. So an error only suggests a missing feature: its call continues without the
feature, and a probe without user content decides for other calls.
"""

import re
import time
from collections.abc import Callable
from typing import Final

import structlog

from runekeep_extractor.providers.errors import ServerError
from runekeep_extractor.settings import Switch

FORGOTTEN_AFTER: Final = 3600.0
"""Seconds. Servers restart with other options, so a missing feature is probed again after this time."""

_log = structlog.get_logger(__name__)


class Feature:
    """A feature that not every server has."""

    def __init__(
        self,
        name: str,
        setting: Switch,
        complaint: re.Pattern[str],
        *,
        probed: bool,
        wording: re.Pattern[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`complaint`: matches errors about it. `wording`: what the text or code of such an error must match too.
        `probed`: whether `auto` is probed before the first use. `clock`: seconds.
        """
        self.name = name
        self._setting = setting
        self._complaint = complaint
        self._wording = wording
        self._probed = probed
        self._clock = clock
        self._works: bool | None = None
        self._found_at = 0.0

    @property
    def wanted(self) -> bool:
        """Returns whether requests use it."""
        return self._setting == "on" or (self._setting == "auto" and self._known() is not False)

    @property
    def unsure(self) -> bool:
        """Returns whether it must be probed before the first use."""
        return self._setting == "auto" and self._probed and self._known() is None

    @property
    def settled(self) -> bool:
        """Returns whether a probe is so recent that another one would show nothing new."""
        return self._works is not None and self._clock() - self._found_at < FORGOTTEN_AFTER

    def found(self, works: bool) -> None:
        """Records a probe's result. A negative result expires after FORGOTTEN_AFTER."""
        self._works = works
        self._found_at = self._clock()
        if not works:
            _log.warning("model_server_lacks_feature", feature=self.name)

    def is_probable_cause_of(self, error: ServerError) -> bool:
        """Returns whether the error seems to be about this feature and the setting allows doing without it."""
        if self._setting != "auto" or not error.may_name_feature:
            return False
        if self._wording is not None and self._wording.search(error.text) is None:
            return False
        return self._complaint.search(error.subject) is not None

    def _known(self) -> bool | None:
        return self._works if self._works or self.settled else None
