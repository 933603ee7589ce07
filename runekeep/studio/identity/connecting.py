"""Connections that carry a visitor's credentials, and nothing of the studio's own environment."""

from runekeep.client.connection.connection import Connection


def visitor_connection(server: str | None, *, key: str = "", account: str = "", user: str = "") -> Connection:
    """Returns a connection with these credentials alone. Raises ValueError for a key that cannot be sent."""
    connection = Connection(server, api_key=key, cert_file="", key_file="")
    named = (("x-runekeep-account", account), ("x-runekeep-user", user))
    secret = tuple(pair for pair in connection.metadata if pair[0] == "authorization")
    connection.metadata = (*secret, *(pair for pair in named if pair[1]))
    return connection
