"""AdminService: accounts, keys, and the status of this server."""
