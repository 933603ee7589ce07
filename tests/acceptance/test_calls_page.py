"""What docs/calls.md says is what the code does."""

import re

from server.limits import ADDING
from server.settings.groups import LimitSettings
from tests.acceptance.test_docs import DOCS, first_cells, section
from tests.integration.test_service_config import NOT_REPEATED

PAGE = DOCS / "calls.md"


def names(methods: frozenset[str] | set[str]) -> set[str]:
    return {method.partition("/")[2] for method in methods}


def test_the_methods_that_a_quota_bounds() -> None:
    assert first_cells(section(PAGE, "Quotas")) == names(ADDING)


def test_the_methods_that_are_not_repeated() -> None:
    assert first_cells(section(PAGE, "Repeating calls")) == names(NOT_REPEATED)


def test_every_limit_is_on_the_page() -> None:
    told = set(re.findall(r"`(\w+)`", section(PAGE, "Limits")))
    assert set(LimitSettings.model_fields) - {"count_seconds"} <= told
