from pathlib import Path

import pytest

from runekeep_common.secret_files import SecretFileError
from runekeep_extractor.engines import open_engine, stall_limit
from runekeep_extractor.offline import OfflineEngine
from runekeep_extractor.settings import AnthropicSettings, ExtractorSettings, to_markdown

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "extractor-settings.md"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "RUNEKEEP_EXTRACTOR_ENGINE",
    ):
        monkeypatch.delenv(name, raising=False)


def test_the_page_of_settings_is_fresh():
    assert DOCS.read_text(encoding="utf-8") == to_markdown()


def test_the_engine_follows_the_environment(monkeypatch):
    assert isinstance(open_engine(ExtractorSettings()), OfflineEngine)
    monkeypatch.setenv("OPENAI_API_KEY", "of something else")
    monkeypatch.setenv("RUNEKEEP_EXTRACTOR_MODEL", "some-model")
    assert ExtractorSettings().chosen_engine == "offline", "nobody asked for OpenAI"
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    assert ExtractorSettings().chosen_engine == "anthropic"
    for name in ("offline", "openai"):
        monkeypatch.setenv("RUNEKEEP_EXTRACTOR_ENGINE", name)
        assert ExtractorSettings().chosen_engine == name


def test_a_key_is_never_shown():
    settings = ExtractorSettings(anthropic=AnthropicSettings(api_key="sk-secret"))
    assert "sk-secret" not in repr(settings)


def test_a_model_call_may_take_its_timeout_on_top():
    settings = ExtractorSettings(engine="anthropic", stall_timeout=10, anthropic=AnthropicSettings(timeout=5))
    assert stall_limit(settings) == 15
    assert stall_limit(settings.model_copy(update={"engine": "offline"})) == 10


def test_empty_variables_count_as_unset(monkeypatch):
    monkeypatch.setenv("RUNEKEEP_EXTRACTOR_CONCURRENCY", "")
    assert ExtractorSettings().concurrency == 4


@pytest.mark.parametrize("variable", ["RUNEKEEP_EXTRACTOR_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"])
def test_a_key_is_given_by_file(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable, raising=False)
    (tmp_path / "key").write_text("a key of a file\n")
    monkeypatch.setenv(f"{variable}_FILE", str(tmp_path / "key"))
    settings = ExtractorSettings()
    of_model = {"ANTHROPIC_API_KEY": settings.anthropic, "OPENAI_API_KEY": settings.openai}
    key = of_model.get(variable, settings).api_key
    assert key is not None and key.get_secret_value() == "a key of a file"
    monkeypatch.setenv(variable, "another one")
    with pytest.raises(SecretFileError, match=f"{variable}_FILE: {variable} is set too"):
        ExtractorSettings()
