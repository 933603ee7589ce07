"""The doctor's look at the model that extractors ask: only when it is wanted, and without a secret."""

import json
import os
from collections.abc import Callable

import pytest

from runekeep_extractor import doctor as of_model
from tests.doubles.messages_api import MessagesApi, answer, error

SECRET = "hidden-7f3a"

Examined = Callable[..., tuple[int, dict[str, dict[str, str]]]]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Examined:
    for name in [name for name in os.environ if name.startswith(("RUNEKEEP_", "ANTHROPIC_", "OPENAI_"))]:
        monkeypatch.delenv(name)

    def examined(*arguments: str, **variables: str) -> tuple[int, dict[str, dict[str, str]]]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        status = of_model.main(arguments)
        said = capsys.readouterr().out
        assert SECRET not in said
        return status, {check["check"]: check for check in json.loads(said)["checks"]}

    return examined


def test_without_a_model_none_is_asked(model: Examined) -> None:
    status, found = model()
    assert (status, [*found]) == (0, ["model.settings"])
    status, found = model(RUNEKEEP_EXTRACTOR_ENGINE="anthropic")
    assert (status, found["model.settings"]["state"]) == (1, "problem")


def test_no_piece_of_a_base_url_or_of_a_token_is_told(model: Examined) -> None:
    status, found = model(ANTHROPIC_BASE_URL=f"https://ann:{SECRET}/x@127.0.0.1", ANTHROPIC_API_KEY="k")
    assert status == 1 and "ANTHROPIC_BASE_URL cannot be read" in found["model.settings"]["found"]
    with MessagesApi() as api:
        api.script(error(401, "authentication_error", f"{SECRET} is wrong"))
        status, found = model("--model-call", ANTHROPIC_BASE_URL=api.url, ANTHROPIC_AUTH_TOKEN=SECRET)
        assert status == 1 and "***" in found["model.call"]["found"]


def test_the_model_is_called_only_when_that_was_asked_for(model: Examined) -> None:
    with MessagesApi() as api:
        given = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": SECRET}
        status, found = model(**given)
        assert (status, found["model.reachable"]["state"], found["model.call"]["state"]) == (0, "ok", "skipped")
        assert api.calls == []

        api.script(answer("Yes"), error(401, "authentication_error", f"{SECRET} is wrong"))
        status, found = model("--model-call", **given)
        assert (status, found["model.call"]["state"]) == (0, "ok")
        status, found = model("--model-call", **given)
        assert (status, found["model.call"]["state"]) == (1, "problem")
        assert "ANTHROPIC_API_KEY" in found["model.call"]["do"] and "***" in found["model.call"]["found"]
    status, found = model("--model-call", **given)
    assert (status, found["model.reachable"]["state"], "model.call" in found) == (1, "problem", False)
