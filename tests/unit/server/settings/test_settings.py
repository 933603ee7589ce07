"""Settings: order of sources, bounds, refusals, and the page about them."""

import os
import traceback
from pathlib import Path

import pytest

from runekeep_server.settings import SettingsError, load_settings, reference, suspicious_variables

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("RUNEKEEP_")]:
        monkeypatch.delenv(name)


def write(path: Path, text: str) -> Path:
    file = path / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_page_about_settings_is_fresh() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert page == reference(), "run: python -m runekeep_server.settings > docs/reference/settings.md"


def test_every_setting_is_described() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} >= {
        "address",
        "search.recency_days",
        "deadlines.call_seconds",
        "log_level",
    }
    assert all(row.rsplit("|", 2)[1].strip() not in ("", "None") for row in rows)


def test_flags_beat_environment_beats_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(
        tmp_path, "data_dir: /from/file\nmax_attempts: 7\nmax_conflicts: 8\nsearch: {candidates: 20, recency_days: 9}\n"
    )
    monkeypatch.setenv("RUNEKEEP_DATA_DIR", "/from/environment")
    monkeypatch.setenv("RUNEKEEP_MAX_ATTEMPTS", "6")
    monkeypatch.setenv("RUNEKEEP_SEARCH__RECENCY_DAYS", "30")
    settings = load_settings(file, {"data_dir": Path("/from/flag")})
    assert settings.data_dir == Path("/from/flag")
    assert settings.max_attempts == 6
    assert settings.max_conflicts == 8
    assert (settings.search.recency_days, settings.search.candidates) == (30, 20)
    assert settings.lease_seconds == 60.0


@pytest.mark.parametrize(
    ("variables", "enabled"),
    [
        ({}, True),
        ({"MEMORY_RECONCILE_ENABLED": "0"}, False),
        ({"LONG_MEMORIES_LOG": "1"}, False),
        ({"LONG_MEMORIES_LOG": ""}, True),
        ({"RUNEKEEP_MEMORY_RECONCILE_ENABLED": "false"}, False),
        # The name with the prefix is ours alone.
        ({"MEMORY_RECONCILE_ENABLED": "0", "RUNEKEEP_MEMORY_RECONCILE_ENABLED": "1"}, True),
    ],
)
def test_buckets_are_switched_by_variables_without_the_prefix_too(
    variables: dict[str, str], enabled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("MEMORY_RECONCILE_ENABLED", "LONG_MEMORIES_LOG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert load_settings().buckets_enabled is enabled
    # A file is weaker.
    if "MEMORY_RECONCILE_ENABLED" in variables:
        assert load_settings(write(tmp_path, f"memory_reconcile_enabled: {not enabled}\n")).buckets_enabled is enabled


@pytest.mark.parametrize("variable", ["MEMORY_RECONCILE_ENABLED", "LONG_MEMORIES_LOG"])
def test_a_wrong_value_is_refused_by_the_variable_that_has_it(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "banana")
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert str(refused.value).startswith(f"{variable.lower()} (RUNEKEEP_{variable} or {variable}): ")


def test_secrets_are_given_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "store"
    secret.write_text("postgresql://a:b@host/database\n")
    monkeypatch.setenv("RUNEKEEP_STORE_URL_FILE", str(secret))
    assert load_settings(write(tmp_path, "store_url: sqlite:///weaker\n")).store_url == "postgresql://a:b@host/database"
    assert suspicious_variables(os.environ) == []
    monkeypatch.setenv("runekeep_store_url", "sqlite:///other.db")
    with pytest.raises(SettingsError, match="RUNEKEEP_STORE_URL_FILE: RUNEKEEP_STORE_URL is set too"):
        load_settings()
    monkeypatch.delenv("runekeep_store_url")
    for text, complaint in (("\n", "is empty"), (None, "cannot be read: No such file")):
        secret.unlink()
        if text is not None:
            secret.write_text(text)
        with pytest.raises(SettingsError, match=f"RUNEKEEP_STORE_URL_FILE: .* {complaint}"):
            load_settings()


def test_blobs_have_one_place(tmp_path: Path) -> None:
    assert load_settings(None, {"blob_url": "s3://bucket/prefix"}).blob_url == "s3://bucket/prefix"
    with pytest.raises(SettingsError, match=r"blob_url .*two places"):
        load_settings(None, {"blob_url": "s3://bucket/prefix", "blob_dir": tmp_path})
    with pytest.raises(SettingsError, match="s3://bucket/prefix"):
        load_settings(None, {"blob_url": "bucket"})


def test_file_named_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNEKEEP_CONFIG", str(write(tmp_path, "session_skills: true\n")))
    assert load_settings().session_skills is True


def test_empty_file_and_empty_variable_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNEKEEP_MAX_ATTEMPTS", "")
    assert load_settings(write(tmp_path, "# nothing yet\n")).model_dump() == load_settings().model_dump()


def test_an_empty_directory_of_blobs_is_none_and_not_the_working_directory(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "blob_dir: ''\n")).blob_dir is None
    assert load_settings(write(tmp_path, "blob_dir: /shared/blobs\n")).blob_dir == Path("/shared/blobs")


def test_directories_are_separated_as_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNEKEEP_TYPES_DIRS", "/one:/two")
    assert load_settings().types_dirs == (Path("/one"), Path("/two"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("lease_second: 3\n", "lease_second: there is no such setting; did you mean lease_seconds?"),
        (
            "search: {recency_day: 3}\n",
            "search.recency_day: there is no such setting; did you mean search.recency_days?",
        ),
        ("max_attempts: 0\n", "max_attempts (RUNEKEEP_MAX_ATTEMPTS): "),
        ("search: {recency_days: 0}\n", "search.recency_days (RUNEKEEP_SEARCH__RECENCY_DAYS): "),
        ("lease_seconds: .nan\n", "lease_seconds (RUNEKEEP_LEASE_SECONDS): "),
        ("lease_seconds: 20\n", "heartbeat_seconds (RUNEKEEP_HEARTBEAT_SECONDS): must be at most 10"),
        ("lease_seconds: 5\nheartbeat_seconds: 1\n", "first_lease_seconds (RUNEKEEP_FIRST_LEASE_SECONDS): must be"),
        ("backoff_max_seconds: 1\n", "backoff_max_seconds (RUNEKEEP_BACKOFF_MAX_SECONDS): must be at least"),
        ("index_url: qdrant.local\n", "index_url (RUNEKEEP_INDEX_URL): must be empty, or URLs"),
        ("store_url: store.db\n", "store_url (RUNEKEEP_STORE_URL): must be empty or a URL"),
        ("address: localhost\n", "address (RUNEKEEP_ADDRESS): must be host:port"),
        ("address: ::1:7433\n", "address (RUNEKEEP_ADDRESS): must be host:port"),
        ("address: localhost:70000\n", "address (RUNEKEEP_ADDRESS): must end in a port"),
        ("metrics_address: '9464'\n", "metrics_address (RUNEKEEP_METRICS_ADDRESS): must be host:port"),
        ("metrics_address: localhost:70000\n", "metrics_address (RUNEKEEP_METRICS_ADDRESS): must end in a port"),
        (
            "embedder: openai\nembedding: {url: 'http://a.example/v1', model: m}\n",
            "embedding.dimension (RUNEKEEP_EMBEDDING__DIMENSION): the embedder `openai` needs a value",
        ),
        (
            "embedder: minilm+openai\nembedding: {model: m, dimension: 8}\n",
            "embedding.url (RUNEKEEP_EMBEDDING__URL): the embedder `minilm+openai` needs a value",
        ),
        ("embedding: {url: 'https://me:key@a.example/v1'}\n", "embedding.url (RUNEKEEP_EMBEDDING__URL): must be a URL"),
        ("reranker: endpoint\n", "rerank.url (RUNEKEEP_RERANK__URL): the reranker `endpoint` needs a value"),
        ("rerank: {url: 'https://a.example/v1?key=k'}\n", "rerank.url (RUNEKEEP_RERANK__URL): must be a URL"),
        ("- a list\n", "must hold `name: value` pairs"),
        ("a: [\n", "is not valid YAML"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(write(tmp_path, text))
    assert named in str(refused.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path / "absent.yaml")


@pytest.mark.parametrize("address", ["0.0.0.0:7433", "[::]:7433", "192.0.2.1:7433", "example.org:7433"])
def test_development_identity_stays_on_this_machine(address: str) -> None:
    with pytest.raises(SettingsError, match=r"address \(RUNEKEEP_ADDRESS\): identity_mode `development`"):
        load_settings(overrides={"address": address})


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.9.9.9:1", "[::1]:7433", "localhost:7433"])
def test_loopback_addresses_are_taken(address: str) -> None:
    assert load_settings(overrides={"address": address}).address == address


def test_secrets_are_neither_shown_nor_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNEKEEP_INDEX_API_KEY", "hush-hush")
    monkeypatch.setenv("RUNEKEEP_EMBEDDER_API_KEY", "hush-hush")
    monkeypatch.setenv("RUNEKEEP_RERANKER_API_KEY", "hush-hush")
    monkeypatch.setenv("RUNEKEEP_STORE_URL", "postgresql://keeper:hush-hush@localhost/runekeep")
    assert "hush-hush" not in repr(load_settings())
    monkeypatch.setenv("RUNEKEEP_STORE_URL", "keeper:hush-hush@localhost")
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert "hush-hush" not in str(refused.value)


def test_group_in_one_variable_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNEKEEP_SEARCH", "dense")
    with pytest.raises(SettingsError, match="must hold JSON") as refused:
        load_settings()
    monkeypatch.delenv("RUNEKEEP_SEARCH")
    # What it advises can be done.
    variable, _, value = str(refused.value).rpartition(" ")[2].removesuffix(".").partition("=")
    monkeypatch.setenv(variable, value)
    assert load_settings().search.dense_weight == float(value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('identity_mode: keys\nadmin_key: "hush-hush\n', "line 3, column 1: found unexpected end of stream"),
        ("identity_mode: keys\nadmin_key: hush-hush: x\n", "line 2, column 21: mapping values are not allowed here"),
        ("admin_key: *hush-hush\n", "line 1, column 12: found undefined alias"),
        ("admin_key: !hush-hush x\n", "line 1, column 12: could not determine a constructor for the tag"),
        ("admin_key: [hush-hush}\n", "line 1, column 22: expected ',' or ']', but got '}'"),
        ("admin_key: hush-hush\0\n", "is not valid YAML"),
        ("admin_key: 2026-13-45\n", "is not valid YAML"),
    ],
)
def test_a_fault_in_the_file_is_told_by_its_place_and_not_quoted(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(write(tmp_path, text))
    assert where in str(refused.value)
    shown = "".join(traceback.format_exception(refused.value))
    assert "hush-hush" not in shown.split("settings.yaml: ", 1)[1] and "2026-13" not in shown


def test_misspelled_variables_are_told_from_foreign_ones() -> None:
    environment = {"RUNEKEEP_LEASE_SECOND": "1", "RUNEKEEP_PORT": "tcp://", "RUNEKEEP_CONFIG": "x", "PATH": "/"}
    environment |= {"RUNEKEEP_LEASE_SECONDS": "1"}
    assert suspicious_variables(environment) == [("RUNEKEEP_LEASE_SECOND", "RUNEKEEP_LEASE_SECONDS")]
