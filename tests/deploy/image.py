"""The image, built from its Dockerfile and run, on a machine without a container engine.

    python -m tests.deploy.image

As root. Debian's buildah carries the Dockerfile out, each step in a chroot, on a base that mmdebstrap makes of Debian's
packages, since no registry of images can be reached. Then server and extractor run from it as the image's configuration
says, with a root that cannot be written to, and somebody outside makes a key, commits a conversation and finds it. Some
two minutes; the base is kept in the virtual environment for a month.
"""

import json
import os
import re
import secrets
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
from packaging.utils import canonicalize_name

from runekeep import Client, TextPart
from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc
from tests.deploy.container import Container, Image
from tests.deploy.tools import DEPLOY, ROOT, of_debian, run
from tests.support.lock import SBOM, read_lock

BASE = Path(sys.prefix) / "deploy-tools" / "bookworm.tar"
BASE_DAYS = 30
MIRROR = "http://deb.debian.org/debian"
NAME = "localhost/runekeep"
BUILD_SECONDS = 900.0
UID = "10001"
DATA = "/var/lib/runekeep"


def base() -> Path:
    """A bare Debian as a tar, of the last month."""
    if not BASE.exists() or BASE.stat().st_mtime < time.time() - BASE_DAYS * 86_400:
        BASE.parent.mkdir(exist_ok=True)
        new = BASE.with_suffix(".new.tar")
        run(of_debian("mmdebstrap", "mmdebstrap"), "--quiet", "--variant=apt", "bookworm", new, MIRROR)
        new.rename(BASE)
    return BASE


class Builder:
    """Buildah with a store of its own."""

    def __init__(self, directory: Path) -> None:
        self._command = (
            of_debian("buildah", "buildah"),
            *("--storage-driver", "vfs", "--root", str(directory / "store"), "--runroot", str(directory / "run")),
        )
        self._directory = directory

    def __call__(self, *arguments: str | Path) -> str:
        return run(*self._command, *arguments, seconds=BUILD_SECONDS).strip()

    def base(self) -> str:
        """The name of the bare Debian as an image."""
        bare = self("from", "scratch")
        self("add", "--quiet", bare, base(), "/")
        self("commit", "--quiet", "--rm", bare, f"{NAME}-base")
        return f"{NAME}-base"

    def build(self) -> Image:
        """Carries the Dockerfile out as it stands, but for the base."""
        # What this machine's pip needs to reach its registry, for the build alone.
        certificates = ssl.get_default_verify_paths().cafile
        pip = self._directory / "pip.conf"
        pip.write_text("[global]\ncert = /run/host.pem\n")
        self(
            *("build", "--quiet", "--isolation", "chroot", "--build-arg", f"BASE={self.base()}"),
            *("--volume", f"{pip}:/etc/pip.conf:ro", "--volume", f"{certificates}:/run/host.pem:ro"),
            *("--file", DEPLOY / "image" / "Dockerfile", "--tag", NAME, ROOT),
        )
        config: dict[str, Any] = json.loads(self("inspect", "--type", "image", NAME))["OCIv1"]["config"]
        return Image(
            Path(self("mount", self("from", NAME))),
            config["User"],
            tuple(config["Env"]),
            tuple(config["Entrypoint"]),
            tuple(config["Cmd"]),
        )


def check_files(image: Image) -> None:
    """What the image is, before anything runs."""
    assert image.user == f"{UID}:{UID}"
    owner = (image.root / DATA.lstrip("/")).stat()
    assert (str(owner.st_uid), owner.st_mode & 0o777) == (UID, 0o700)
    for program in ("opt/runekeep/bin/pip", "usr/bin/gcc", "usr/bin/git"):
        assert not (image.root / program).exists(), program
    for secret in (".git", "src", "root/.cache/pip", "etc/pip.conf"):
        found = image.root / secret
        assert not found.exists() or not found.is_dir() or not any(found.iterdir()), secret
    installed = (image.root / "opt/runekeep/packages.txt").read_text()
    packages = dict(re.findall(r"^([\w.-]+)==(\S+)$", installed, re.MULTILINE))
    assert "runekeep" in installed and packages
    assert {canonicalize_name(name): version for name, version in packages.items()}.items() <= {
        *((one.name, one.version) for one in read_lock(image=True))
    }
    assert (image.root / "opt/runekeep/sbom.cdx.json").read_bytes() == SBOM.read_bytes()


def check_refusal(image: Image, directory: Path) -> None:
    """Without settings it would serve the world in development mode: it refuses, and says what to do."""
    data = volume(directory / "bare")
    ended = Container(image, directory / "bare.log", {DATA: data}).run()
    assert ended.returncode == 2 and "RUNEKEEP_" in ended.stderr, ended.stderr


def volume(directory: Path) -> Path:
    """An empty one, of the image's user."""
    directory.mkdir()
    os.chown(directory, int(UID), int(UID))
    return directory


def check_rights(container: Container) -> None:
    """What the kernel says of a process that runs."""
    status = container.status()
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {UID}, status
    assert status["NoNewPrivs"] == "1" and status["Groups"] == ""
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd")} == {0}
    mounts = [line.split() for line in Path(f"/proc/{container.pid}/mountinfo").read_text().splitlines()]
    (root,) = [fields[5] for fields in mounts if fields[4] == "/"]
    assert "ro" in root.split(","), root


def check_writes(image: Image, directory: Path) -> None:
    """Nothing but the data directory and /tmp takes a file."""
    inside = Container(image, directory / "writes.log", {DATA: volume(directory / "writes")})
    for place, may in ((DATA, True), ("/tmp", True), ("/opt/runekeep", False), ("/etc", False), ("/var/tmp", False)):
        ended = inside.run("-c", f"echo 1 > {place}/trial", entrypoint=("sh",))
        assert (ended.returncode == 0) == may, f"{place}: {ended.stderr}"


def check_service(image: Image, directory: Path) -> None:
    """Server and extractor in the mode `keys`, over TLS, and somebody outside who uses them."""
    certificates = directory / "certificates"
    run(DEPLOY / "compose" / "certificates.sh", certificates)
    os.chown(certificates / "server.key", int(UID), int(UID))
    admin, worker = secrets.token_hex(24), secrets.token_hex(24)
    server = Container(
        image,
        directory / "server.log",
        {DATA: volume(directory / "data"), "/certificates": certificates},
        {
            # Not the image's own, which would be seen by others than this machine.
            "RUNEKEEP_ADDRESS": "127.0.0.1:0",
            "RUNEKEEP_IDENTITY_MODE": "keys",
            "RUNEKEEP_ADMIN_KEY": admin,
            "RUNEKEEP_WORKER_KEY": worker,
            "RUNEKEEP_TLS__CERTIFICATE": "/certificates/server.pem",
            "RUNEKEEP_TLS__KEY": "/certificates/server.key",
            "RUNEKEEP_CA_FILE": "/certificates/ca.pem",
        },
    )
    extractor = Container(
        image,
        directory / "extractor.log",
        {"/certificates": certificates},
        {
            "RUNEKEEP_EXTRACTOR_API_KEY": worker,
            "RUNEKEEP_EXTRACTOR_CA_FILE": "/certificates/ca.pem",
            "RUNEKEEP_EXTRACTOR_ENGINE": "offline",
        },
    )
    studio = Container(
        image,
        directory / "studio.log",
        {"/certificates": certificates},
        {"RUNEKEEP_CA_FILE": "/certificates/ca.pem"},
    )
    try:
        address = server.start().first_line()["address"]
        check_rights(server)
        check_health(server, address)
        extractor.start("extractor", "--server", address).wait_for('"starting"')
        check_rights(extractor)
        use(address, admin, certificates / "ca.pem")
        studio.start("studio", "--json", "--address", f"https://{address}", "--listen", "127.0.0.1:0")
        check_studio(studio.first_line()["studio"])
        assert studio.stop() == 0, studio.log.read_text()[-4000:]
        assert extractor.stop() == 0, extractor.log.read_text()[-4000:]
        assert server.stop() == 0, server.log.read_text()[-4000:]
    finally:
        studio.discard()
        extractor.discard()
        server.discard()
    for container in (server, extractor):
        lines = [json.loads(line) for line in container.log.read_text().splitlines() if line.startswith("{")]
        faults = [line for line in lines if line.get("level") in ("error", "critical")]
        assert not faults, faults


def check_health(server: Container, address: str) -> None:
    """The probe of compose.yaml and of the chart, from within."""
    probe = ("health", "--address", address, "--json")
    serves = server.run(*probe, "--service", "runekeep.v1.SessionService")
    assert serves.returncode == 0 and json.loads(serves.stdout)["status"] == "SERVING", serves.stdout + serves.stderr
    unknown = server.run(*probe, "--service", "runekeep.v1.NoService")
    assert unknown.returncode == 1 and json.loads(unknown.stdout)["status"] == "SERVICE_UNKNOWN"
    # Not the name on the certificate: whoever answers there is not believed.
    other = server.run(*probe, "--server-name", "elsewhere.example")
    assert other.returncode == 1 and json.loads(other.stdout)["status"] == "NOT_REACHED"


def check_studio(link: str) -> None:
    """Its login page asks for a key, so it reached the server, and its files are there."""
    with urlopen(f"{link}login", timeout=10) as page:
        assert "key" in page.read().decode()
    with urlopen(f"{link}static/vendor/htmx/htmx.min.js", timeout=10) as file:
        assert file.status == 200


def use(address: str, admin: str, ca: Path) -> None:
    """A key for a user, one commit, and what is found of it."""
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    request = admin_service_pb2.CreateApiKeyRequest(
        scope=admin_service_pb2.SCOPE_USER, account="studio", user="mara", request_id="image"
    )
    with grpc.secure_channel(address, credentials) as channel:
        stub: Any = admin_service_pb2_grpc.AdminServiceStub(channel)
        made = stub.CreateApiKey(request, timeout=10, metadata=(("authorization", f"Bearer {admin}"),))
    with Client(address, api_key=made.secret, ca_file=ca) as client:
        session = client.create_session("first")
        session.add_message("user", [TextPart("I am Mara, a potter in Faenza. The new kiln arrives on 20 March 2026.")])
        commit = session.commit()
        task = client.wait_task(commit["task_id"], timeout=60)
        assert task["status"] == "completed", task
        found = client.find("When does the kiln arrive?", min_revision=task["result"]["revision"])
        assert "20 March" in json.dumps(found.to_dict()), found


def main() -> int:
    assert os.getuid() == 0, "it makes file systems and namespaces: run it as root"
    begun = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="runekeep-image-") as temporary:
        directory = Path(temporary)
        # The image's user passes through it to its volumes.
        directory.chmod(0o711)
        base()
        say("a bare Debian")
        image = Builder(directory).build()
        size = sum(file.stat().st_size for file in image.root.rglob("*") if file.is_file() and not file.is_symlink())
        say(f"built: {size / 1e6:,.0f} MB of files")
        check_files(image)
        check_refusal(image, directory)
        say("refuses to serve the world without an identity mode")
        check_writes(image, directory)
        say("writes to its data directory and /tmp alone")
        check_service(image, directory)
        say("server and extractor: keys, TLS, health, one commit from outside, drained")
    return 0


if __name__ == "__main__":
    sys.exit(main())
