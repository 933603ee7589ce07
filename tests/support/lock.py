"""Reads requirements.lock, from which `make install`, the image and CI install."""

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
SBOM = ROOT / "deploy" / "image" / "sbom.cdx.json"
_DEVELOPMENT_LINE = "\n# development\n"


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A package of the lock. `hashes` are those of its files, as `sha256:...`."""

    name: str
    version: str
    hashes: tuple[str, ...]


def read_lock(*, image: bool = False) -> list[LockedPackage]:
    """Returns all packages of the lock, or with `image` only those of the image."""
    text = LOCK.read_text()
    assert text.count(_DEVELOPMENT_LINE) == 1
    if image:
        text = text.partition(_DEVELOPMENT_LINE)[0]
    entries = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return [_parse_entry(line) for line in entries]


def _parse_entry(line: str) -> LockedPackage:
    requirement = Requirement(line.partition(" --hash=")[0])
    (pin,) = requirement.specifier
    assert pin.operator == "=="
    hashes = tuple(re.findall(r"--hash=(\S+)", line))
    return LockedPackage(canonicalize_name(requirement.name), pin.version, hashes)
