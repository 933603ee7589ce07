"""The alert rules and the example of a scrape, by Prometheus's own checker; and when the rules fire."""

import pytest

from tests.deploy.tools import DEPLOY, ROOT, of_debian, run

pytestmark = pytest.mark.deploy

FOLDER = DEPLOY / "prometheus"


@pytest.fixture
def promtool() -> str:
    return of_debian("promtool", "prometheus")


def test_the_rules_are_ones_that_prometheus_takes(promtool: str) -> None:
    told = run(promtool, "check", "rules", "--lint-fatal", FOLDER / "alerts.yaml")
    assert "SUCCESS" in told


def test_the_example_of_a_scrape_is_a_configuration(promtool: str) -> None:
    run(promtool, "check", "config", FOLDER / "scrape.yml")


def test_alerts_fire_when_they_should_and_only_then(promtool: str) -> None:
    run(promtool, "test", "rules", ROOT / "tests" / "deploy" / "alerts_test.yaml")
