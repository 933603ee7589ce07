"""The files that make the image: linters of their own, and what Runekeep's packages ask of them."""

import re
import tomllib

import pytest

from tests.deploy.tools import DEPLOY, ROOT, installed, run

pytestmark = pytest.mark.deploy

DOCKERFILE = DEPLOY / "image" / "Dockerfile"


def test_the_dockerfile_passes_hadolint() -> None:
    run(installed("hadolint"), "--failure-threshold", "style", DOCKERFILE)


def test_every_script_passes_shellcheck() -> None:
    scripts = sorted(DEPLOY.rglob("*.sh"))
    assert len(scripts) >= 4
    run(installed("shellcheck"), *scripts)
    for script in scripts:
        assert script.stat().st_mode & 0o111, f"{script.name} cannot be executed"


def test_every_yaml_file_passes_yamllint() -> None:
    # Templates are no YAML yet, and what helm makes of them is written as it likes.
    files = [file for file in sorted(DEPLOY.rglob("*.yaml")) if not {"templates", "kubernetes"} & set(file.parts)]
    assert len(files) >= 8
    rules = (
        "{extends: default, rules: {line-length: {max: 160}, document-start: disable, braces: {max-spaces-inside: 0}}}"
    )
    run(installed("yamllint"), "--strict", "--config-data", rules, *files)


def test_every_package_of_the_wheel_reaches_the_build() -> None:
    # The file lets through what it names, and nothing else.
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_through = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages = {path.split("/")[0] for path in wheel["packages"]}
    needed = {
        *packages,
        *wheel["force-include"],
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
    }
    assert let_through == {*needed, "requirements.lock", "deploy/image/*.sh", "deploy/image/sbom.cdx.json"}


def test_the_image_has_every_extra_that_a_setting_asks_for() -> None:
    (recipe,) = re.findall(r"--extra .*(?= --output-file \$\(LOCK\)/image.txt)", (ROOT / "Makefile").read_text())
    extras = re.findall(r"--extra (\w+)", recipe)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    # The others are for those who develop, for a model server beside it, for embedders that bring many packages, for
    # processes beside an agent or a server, and for tests.
    tried = {"test-frameworks", "test-llama-index", "test-claude-agent-sdk", "test-studio"}
    of_others = tried | {"all", "dev", "deploy", "local-model", "fastembed", "mcp", "proxy", "http"}
    assert set(extras) == set(project["project"]["optional-dependencies"]) - of_others
