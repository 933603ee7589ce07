"""Parses listen addresses."""

import ipaddress


def split_address(address: str) -> tuple[str, int]:
    """Returns the parts of `host:port` or `[IPv6]:port`, without brackets. Raises ValueError with the reason."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or (":" in host and not bracketed):
        raise ValueError("must be host:port, or [address]:port for IPv6")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError("must end in a port from 0 to 65535")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a listener on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
