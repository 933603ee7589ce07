"""Commands of docs/operate/deploying.md: those that need no engine and no cluster are run, others are named here."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.deploy.tools import DEPLOY, ROOT, bundled, installed, run

pytestmark = pytest.mark.deploy

PAGE = ROOT / "docs" / "operate" / "deploying.md"
ELSEWHERE = {
    "docker": "there is no engine; the file that is built and the one that is started are tried otherwise",
    "make": "the test of the image runs by itself",
    "runekeep": "the test of the image runs it in the image, other tests of the CLI elsewhere",
    "sh": "test_compose.py runs the script, with another file",
    "export": "for the command behind it",
    "envoy": "test_envoy.py runs it, with certificates that are there",
}
HERE = {"kubectl", "helm"}


def commands() -> list[str]:
    blocks = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)
    return re.findall(r"^    (\S.*)$", blocks.sub("", PAGE.read_text()), re.MULTILINE)


def test_every_command_is_tried_or_named() -> None:
    begun = {command.split()[0] for command in commands()}
    assert begun == set(ELSEWHERE) | HERE


def test_every_file_that_a_command_names_is_there() -> None:
    for path in re.findall(r"\bdeploy/[\w/.-]+\w", " ".join(commands())):
        assert (ROOT / path).exists() or path == "deploy/compose/.env", path


def test_the_targets_of_make_are_there() -> None:
    targets = set(re.findall(r"^    make ([\w-]+)|`make ([\w-]+)`", PAGE.read_text(), re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    for target in {one or other for one, other in targets}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_secrets_are_made_as_the_chart_asks_for_them(tmp_path: Path) -> None:
    run(DEPLOY / "compose" / "certificates.sh", tmp_path)
    for made, name in (("server.pem", "tls.crt"), ("server.key", "tls.key"), ("ca.pem", "ca.crt")):
        (tmp_path / made).rename(tmp_path / name)
    secrets = {}
    for command in commands():
        if not command.startswith("kubectl"):
            continue
        arguments = [argument.replace("$(openssl rand -hex 24)", "a" * 48) for argument in shlex.split(command)[1:]]
        arguments = [re.sub(r"^(--from-file=)(.+)$", rf"\1{tmp_path}/\2", argument) for argument in arguments]
        made = yaml.safe_load(run(bundled("kubectl"), *arguments, "--dry-run=client", "--output=yaml"))
        secrets[made["metadata"]["name"]] = set(made["data"])
    plain = (DEPLOY / "kubernetes" / "runekeep.yaml").read_text()
    of_the_example = re.findall(r"secretKeyRef: \{name: ([\w-]+), key: ([\w-]+)\}", PAGE.read_text())
    assert of_the_example and all(key in secrets[name] for name, key in of_the_example)
    used = [
        (one["valueFrom"]["secretKeyRef"]["name"], one["valueFrom"]["secretKeyRef"])
        for thing in yaml.safe_load_all(plain)
        if thing["kind"] == "Deployment"
        for container in thing["spec"]["template"]["spec"]["containers"]
        for one in container["env"]
        if "secretKeyRef" in one.get("valueFrom", {})
    ]
    assert used
    for name, reference in used:
        assert reference.get("optional") or reference["key"] in secrets[name], reference
    assert set(re.findall(r"/certificates/([\w.]+)", plain)) <= secrets["runekeep-tls"]


def test_installations_render(tmp_path: Path) -> None:
    installs = [shlex.split(command)[1:] for command in commands() if command.startswith("helm install")]
    assert len(installs) == 2
    values = re.search(
        r"<!-- example: values.yaml -->\n```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert values
    (tmp_path / "values.yaml").write_text(values[1])
    for arguments in installs:
        file = tmp_path / "rendered.yaml"
        here = [argument.replace("values.yaml", str(tmp_path / "values.yaml")) for argument in arguments[1:]]
        file.write_text(run(bundled("helm"), "template", *here))
        run(installed("kubernetes-validate"), "--strict", file)
