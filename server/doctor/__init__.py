"""Looks at what a server would work with and says what is wrong: `python -m server.doctor`. It changes nothing."""
