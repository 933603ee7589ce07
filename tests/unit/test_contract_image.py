"""The contract as one buf image, which a release carries."""

import subprocess

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from runekeep_server.rpc.methods import METHODS
from tests.support.pages import ROOT

IMAGE = ROOT / "dist" / "runekeep.binpb"


def make(*command: str) -> None:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_image_holds_the_whole_contract_and_buf_reads_it() -> None:
    make("make", "contract")
    pool = descriptor_pool.DescriptorPool()
    services = []
    # A file comes after those that it imports.
    for file in FileDescriptorSet.FromString(IMAGE.read_bytes()).file:
        pool.Add(file)
        services += [f"{file.package}.{service.name}" for service in file.service]
    found = [pool.FindServiceByName(name) for name in services]
    assert {f"/{one.full_name}/{method.name}" for one in found for method in one.methods} == set(METHODS)
    make("buf", "breaking", "--against", str(IMAGE))
