"""Commands that check an installation and a server."""
