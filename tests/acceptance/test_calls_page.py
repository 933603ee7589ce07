"""What docs/reference/calls.md says is what the code does."""

import re

from runekeep_server.settings.groups import LimitSettings
from tests.integration.rpc.test_service_config import NOT_REPEATED
from tests.support.pages import DOCS, first_cells, section

PAGE = DOCS / "reference" / "calls.md"


def test_the_methods_that_are_not_repeated() -> None:
    assert first_cells(section(PAGE, "Repeating calls")) == {method.partition("/")[2] for method in NOT_REPEATED}


def test_every_limit_is_on_the_page() -> None:
    told = set(re.findall(r"`(\w+)`", section(PAGE, "Limits")))
    assert set(LimitSettings.model_fields) - {"count_seconds"} <= told
