"""What a model behind a server turns out to support: told by a switch, or found out by a probe.

The words of an error may quote the conversation. So a complaint only says where to look: the call that it was about
goes on without the feature, and for other calls a probe decides, in which there is nothing of anybody's.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from extractor.anthropic_engine.failures import subject_of
from extractor.settings import AnthropicSettings, Switch

if TYPE_CHECKING:
    from anthropic import APIStatusError

FORGOTTEN_AFTER: Final = 3600.0
"""Seconds. Servers are started anew with other options; what one lacked is looked for again after that."""

# Some servers call a feature that they were started without an error of their own.
COMPLAINTS: Final = frozenset({400, 422, 500, 501})
_ABOUT_FORMAT: Final = re.compile(r"output_config|output_format|json_schema|structured output")
_ABOUT_TOOLS: Final = re.compile(r"\btools?\b|tool_choice|input_schema")

_log = structlog.get_logger(__name__)


class Feature:
    """Something that not every server has."""

    def __init__(
        self,
        name: str,
        setting: Switch,
        complaint: re.Pattern[str],
        *,
        probed: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`complaint`: what errors about it say. `probed`: whether `auto` is found out before the first use. `clock`:
        seconds.
        """
        self.name = name
        self._setting = setting
        self._complaint = complaint
        self._probed = probed
        self._clock = clock
        self._works: bool | None = None
        self._found_at = 0.0

    @property
    def wanted(self) -> bool:
        """Whether it is asked for."""
        return self._setting == "on" or (self._setting == "auto" and self._known() is not False)

    @property
    def unsure(self) -> bool:
        """Whether a probe has to tell before the first use."""
        return self._setting == "auto" and self._probed and self._known() is None

    @property
    def settled(self) -> bool:
        """Whether a probe told so lately that another one would tell nothing new."""
        return self._works is not None and self._clock() - self._found_at < FORGOTTEN_AFTER

    def found(self, works: bool) -> None:
        """A probe has told. That it does not work is forgotten after FORGOTTEN_AFTER."""
        self._works = works
        self._found_at = self._clock()
        if not works:
            _log.warning("model_server_lacks_feature", feature=self.name)

    def may_be_meant_by(self, error: "APIStatusError") -> bool:
        """Whether the server's complaint reads as if it were about this and the setting allows to do without."""
        if self._setting != "auto" or error.status_code not in COMPLAINTS:
            return False
        return self._complaint.search(subject_of(error)) is not None

    def _known(self) -> bool | None:
        return self._works if self._works or self.settled else None


@dataclass(frozen=True, slots=True)
class Features:
    """Of one model. A server may serve models of several kinds, so nothing is concluded from one to another."""

    structured_output: Feature
    tools: Feature

    @classmethod
    def by(cls, settings: AnthropicSettings, *, probed: bool) -> "Features":
        """As the switches have them. `probed`: whether `auto` is found out before the first use."""
        return cls(
            Feature("structured_output", settings.structured_output, _ABOUT_FORMAT, probed=probed),
            Feature("tools", settings.tools, _ABOUT_TOOLS, probed=probed),
        )

    def with_keys(self) -> Iterator[tuple[str, Feature]]:
        """Each with the key of a request that asks for it."""
        yield "output_config", self.structured_output
        yield "tools", self.tools
