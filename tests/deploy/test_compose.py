"""The compose file and what it mounts: by the schema of the specification, and by what the file promises itself."""

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from runekeep_extractor.settings import ExtractorSettings
from runekeep_server.settings import load_settings, suspicious_variables
from tests.deploy.tools import DEPLOY, installed, of_debian, ran, run

pytestmark = pytest.mark.deploy

FOLDER = DEPLOY / "compose"
FILE = FOLDER / "compose.yaml"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return loaded


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, str]:
    """The values that the script makes."""
    file = tmp_path / ".env"
    run(FOLDER / "secrets.sh", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if line and not line.startswith("#"))


def values_of(text: str, values: dict[str, str]) -> str:
    """With variables put in as Compose does."""

    def value(found: re.Match[str]) -> str:
        name, operator, rest = found[1], found[2] or "", found[3] or ""
        given = values.get(name, "")
        assert given or operator == ":-", f"{name} has no value"
        return given or rest

    return re.sub(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", value, text)


def test_it_is_what_the_specification_allows() -> None:
    run(installed("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", FILE)


def test_everything_that_is_named_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}, which nobody checks"
            else:
                assert condition["condition"] == "service_completed_successfully"
                assert "restart" not in services[other], f"{name} waits for the end of {other}, which begins again"
        for network in service.get("networks", []):
            assert network in compose["networks"], f"{name}: {network}"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).exists(), f"{name}: there is no {source}"
            else:
                assert source in compose["volumes"], f"{name}: {source}"


def test_no_service_has_more_rights_than_it_needs(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name
        assert "restart" not in service or service["deploy"]["resources"]["limits"]["memory"], name
        assert not service["image"].endswith("latest"), name
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert set(published) == {"envoy", "prometheus", "grafana"}
    for name in ("prometheus", "grafana"):
        assert all(port.startswith("127.0.0.1:") for port in published[name])
    # Users reach Envoy and nothing else. The internal address, for extractors and operators, is not published.
    assert [port.rpartition(":")[2] for port in published["envoy"]] == ["7433", "8443"]
    assert members(compose, "calls") == {"envoy", "server"} and members(compose, "work") == {"extractor", "server"}
    internal = compose["services"]["server"]["environment"]["RUNEKEEP_INTERNAL_ADDRESS"].rpartition(":")[2]
    worker = compose["services"]["extractor"]["environment"]["RUNEKEEP_EXTRACTOR_SERVER"]
    assert worker == f"dns:///server:{internal}" and internal not in (DEPLOY / "envoy" / "envoy.yaml").read_text()
    # Store and index are reached by servers alone.
    assert compose["networks"]["store"]["internal"] is True
    assert members(compose, "store") == {"postgres", "qdrant", "server"}


def members(compose: dict[str, Any], network: str) -> set[str]:
    return {name for name, one in compose["services"].items() if network in one.get("networks", [])}


def test_every_image_may_be_given_by_its_digest(compose: dict[str, Any], secrets: dict[str, str]) -> None:
    for name, service in compose["services"].items():
        (variable,) = re.findall(r"^\$\{(\w+_IMAGE):-", service["image"])
        by_digest = f"registry.example/{name}@sha256:{'0' * 64}"
        assert values_of(service["image"], {variable: by_digest}) == by_digest
        assert re.fullmatch(r"[\w/.-]+(:[\w.-]+)?", values_of(service["image"], secrets))


def test_every_secret_is_random_and_every_variable_has_its_line(secrets: dict[str, str], tmp_path: Path) -> None:
    asked = set(re.findall(r"\$\{(\w+)", FILE.read_text()))
    assert asked - {"RUNEKEEP_IMAGE"} == set(secrets)
    made = [value for value in secrets.values() if len(value) == 48]
    assert len(made) == len(set(made)) == 5
    assert "random" not in secrets.values()
    # A second time nothing is written over.
    assert ran(FOLDER / "secrets.sh", tmp_path / ".env").returncode == 1


def test_server_and_extractor_take_their_settings(
    compose: dict[str, Any], secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.startswith(("RUNEKEEP_", "ANTHROPIC_", "OPENAI_")):
            monkeypatch.delenv(name)
    image = dict(re.findall(r"(RUNEKEEP_\w+)=(\S+)", (DEPLOY / "image" / "Dockerfile").read_text()))
    given = {**image, **variables(compose["services"]["server"], secrets)}
    with monkeypatch.context() as server:
        for name, value in given.items():
            server.setenv(name, value)
        settings = load_settings()
    assert suspicious_variables(given) == []
    assert settings.identity_mode == "keys"
    assert settings.store_url == f"postgresql://runekeep:{secrets['POSTGRES_PASSWORD']}@postgres/runekeep"
    assert settings.data_dir != settings.blob_dir and settings.blob_dir is not None
    with monkeypatch.context() as extractor:
        for name, value in variables(compose["services"]["extractor"], secrets).items():
            extractor.setenv(name, value)
        worker = ExtractorSettings()
    assert worker.api_key is not None and worker.api_key.get_secret_value() == secrets["RUNEKEEP_WORKER_KEY"]
    assert worker.chosen_engine == "offline"
    for name, seconds in (("server", settings.drain_seconds), ("extractor", worker.grace)):
        assert int(compose["services"][name]["stop_grace_period"].removesuffix("s")) > seconds + 10


def variables(service: dict[str, Any], values: dict[str, str]) -> dict[str, str]:
    return {name: values_of(str(value), values) for name, value in service["environment"].items()}


def test_certificates_are_made_once_and_made_anew_in_time(tmp_path: Path) -> None:
    openssl = of_debian("openssl", "openssl")
    folder = tmp_path / "authority"
    script = FOLDER / "certificates.sh"
    run(script, folder, "memory.example.com")
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(first) == {"ca.pem", "ca.key", "ca.srl", "server.pem", "server.key"}
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    for name in ("server", "envoy", "localhost", "memory.example.com"):
        run(openssl, "verify", "-CAfile", folder / "ca.pem", "-verify_hostname", name, folder / "server.pem")
    refused = ran(openssl, "verify", "-CAfile", folder / "ca.pem", "-verify_hostname", "other", folder / "server.pem")
    assert refused.returncode != 0

    run(script, folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == first

    # One that ends within the month: the same request, signed for a day.
    run(
        *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "1"),
        *("-subj", "/CN=server", "-keyout", folder / "server.key", "-out", folder / "server.pem"),
    )
    run(script, folder)
    assert (folder / "ca.pem").read_bytes() == first["ca.pem"], "callers hold the authority's certificate"
    run(openssl, "verify", "-CAfile", folder / "ca.pem", "-verify_hostname", "server", folder / "server.pem")


def test_certificates_are_moved_to_where_they_are_looked_for(compose: dict[str, Any], tmp_path: Path) -> None:
    service = compose["services"]["certificates"]
    assert service["entrypoint"] == ["/bin/sh", "-euc"]
    (command,) = service["command"]
    places = {"/certificates.sh": FOLDER / "certificates.sh"}
    places |= {f"/{name}": tmp_path / name for name in ("authority", "certificates")}
    (tmp_path / "certificates").mkdir()
    command = re.sub(r"/(?:certificates\.sh|authority|certificates)\b", lambda found: str(places[found[0]]), command)
    # The owner is another one's affair: whoever runs this is not root.
    command = command.replace("$$", "$").replace("-o 10001 -g 10001 ", "")

    def installed() -> dict[str, int]:
        run("sh", "-euc", command, RUNEKEEP_NAMES="")
        found = (tmp_path / "certificates").iterdir()
        return {file.name: stat.S_IMODE(file.stat().st_mode) for file in found}

    first = installed()
    assert first == {"ca.pem": 0o644, "server.pem": 0o644, "server.key": 0o400}
    # What was there is replaced and not written to: Envoy and the servers never see half of it.
    before = (tmp_path / "certificates" / "server.pem").stat().st_ino
    assert installed() == first
    assert (tmp_path / "certificates" / "server.pem").stat().st_ino != before


def test_what_an_export_keeps_does_not_lie_in_memory(compose: dict[str, Any]) -> None:
    server = compose["services"]["server"]
    place = server["environment"]["TMPDIR"]
    assert place in [volume.split(":")[1] for volume in server["volumes"]]
    assert place not in [mount.split(":")[0] for mount in server["tmpfs"]]


def test_the_collector_has_every_part_that_its_pipelines_name() -> None:
    # No registry has the collector's own program from its makers, so this is all that is checked of the file.
    collector = yaml.safe_load((FOLDER / "collector.yaml").read_text())
    for pipeline in collector["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(collector[kind])
    used = {
        part for pipeline in collector["service"]["pipelines"].values() for kind in pipeline.values() for part in kind
    }
    assert used == {part for kind in ("receivers", "processors", "exporters") for part in collector[kind]}
    assert collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == "0.0.0.0:4317"


def test_the_dashboards_and_the_scraped_addresses_are_those_of_the_services(compose: dict[str, Any]) -> None:
    prometheus = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    jobs = {job["job_name"]: job for job in prometheus["scrape_configs"]}
    for name, variable in (("server", "RUNEKEEP_METRICS_ADDRESS"), ("extractor", "RUNEKEEP_EXTRACTOR_METRICS_ADDRESS")):
        # The alerts know the jobs by these names.
        (search,) = jobs[f"runekeep-{name}"]["dns_sd_configs"]
        assert search["names"] == [name]
        assert compose["services"][name]["environment"][variable].endswith(f":{search['port']}")
    (rules,) = prometheus["rule_files"]
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["prometheus"]["volumes"])
    assert str(Path(rules).parent) == mounts["../prometheus"] and (DEPLOY / "prometheus" / Path(rules).name).exists()
    provider = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text())["providers"][0]
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert mounts["../grafana"] == provider["options"]["path"]
    assert list((DEPLOY / "grafana").glob("*.json")), "there are dashboards"


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    # At the place where the container sees the rules; promtool reads them too.
    text = (FOLDER / "prometheus.yaml").read_text().replace("/etc/prometheus/rules", str(DEPLOY / "prometheus"))
    (tmp_path / "prometheus.yaml").write_text(text)
    said = run(of_debian("promtool", "prometheus"), "check", "config", tmp_path / "prometheus.yaml")
    assert "rules found" in said
