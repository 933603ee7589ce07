"""The PostgreSQL driver: pools, shards of the writer, and connections that reopen when they are lost."""
