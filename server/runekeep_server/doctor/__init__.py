"""Checks the environment of a server and reports problems: `python -m runekeep_server.doctor`. It changes nothing."""
