"""The Python client reaches every call of the contract, awaited and blocking."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from runekeep import Append, AsyncAppend, AsyncClient, AsyncSession, AsyncWriter, Client, Session, Writer
from runekeep.client.admin import Admin, AsyncAdmin
from tests.typed.samples import public_methods, samples

ROOT = Path(__file__).parents[4]
CLIENT = ROOT / "runekeep" / "client"


def services() -> Iterator[ServiceDescriptor]:
    """Those that callers speak to; workers have a client of their own."""
    for file in sorted((ROOT / "proto" / "runekeep" / "v1").glob("*_service.proto")):
        module = import_module(f"runekeep.v1.{file.stem}_pb2")
        yield from (one for one in module.DESCRIPTOR.services_by_name.values() if one.name != "ExtractorService")


def called() -> set[tuple[str, str]]:
    """(stub, method) of every `stubs.STUB.METHOD` in the client."""
    found = set()
    for file in CLIENT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Attribute(attr=method, value=ast.Attribute(attr=stub, value=ast.Attribute(attr="stubs"))):
                    found.add((stub, method))
    return found


def test_every_call_of_the_contract_is_made_by_the_client() -> None:
    contract = {(service.name, method.name) for service in services() for method in service.methods}
    assert len(contract) > 50
    reached = {method for _, method in called()}
    assert {f"{service}.{method}" for service, method in contract if method not in reached} == set()


PAIRS = [
    (AsyncClient, Client),
    (AsyncSession, Session),
    (AsyncWriter, Writer),
    (AsyncAppend, Append),
    (AsyncAdmin, Admin),
]


@pytest.mark.parametrize(("awaited", "blocking"), PAIRS)
def test_what_can_be_awaited_can_be_waited_for(awaited: type, blocking: type) -> None:
    def public(of: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}

    assert public(awaited) == public(blocking)


@pytest.mark.parametrize(("name", "method"), list(public_methods()))
def test_the_docstring_of_each_method_shows_it_in_a_sample(name: str, method: object) -> None:
    assert any(re.search(rf"\.{name.partition('.')[2]}\b", sample) for sample in samples(method))


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "runekeep" / "py.typed").exists()
    untyped = [
        f"{owner.__name__}.{name}"
        for owner, _ in PAIRS
        for name, method in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_") and "return" not in inspect.get_annotations(method)
    ]
    assert not untyped
