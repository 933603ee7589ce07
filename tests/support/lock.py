"""Reads requirements.lock, from which `make install`, the image and CI install."""

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
SBOM = ROOT / "deploy" / "image" / "sbom.cdx.json"
_REST = "\n# development\n"


@dataclass(frozen=True, slots=True)
class Locked:
    """A package of the lock. `hashes`: of its files, as `sha256:...`."""

    name: str
    version: str
    hashes: tuple[str, ...]


def locked(*, image: bool = False) -> list[Locked]:
    """Returns all packages, or those of the image."""
    text = LOCK.read_text()
    assert text.count(_REST) == 1
    if image:
        text = text.partition(_REST)[0]
    entries = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return [_entry(line) for line in entries]


def _entry(line: str) -> Locked:
    requirement = Requirement(line.partition(" --hash=")[0])
    (pin,) = requirement.specifier
    assert pin.operator == "=="
    hashes = tuple(re.findall(r"--hash=(\S+)", line))
    return Locked(canonicalize_name(requirement.name), pin.version, hashes)
