"""Addresses to listen on, of servers, extractors and metrics alike."""

import pytest

from runekeep_common.addresses import is_loopback, split_address


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:7433", ("::1", 7433)),
        ("[::]:65535", ("::", 65535)),
    ],
)
def test_an_address_may_be_of_either_family(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "9464", ":9464", "::1:9465", "[]:1", "[::1:9465"])
def test_an_address_without_a_host_is_none(address: str) -> None:
    with pytest.raises(ValueError, match=r"must be host:port, or \[address\]:port for IPv6"):
        split_address(address)


@pytest.mark.parametrize("address", ["host:", "host:port", "host:65536", "host:-1", "host:\u0661", "[::1]"])
def test_an_address_without_a_port_is_none(address: str) -> None:
    with pytest.raises(ValueError, match=r"must end in a port from 0 to 65535|must be host:port"):
        split_address(address)


def test_who_listens_for_this_machine_alone_is_known() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))
