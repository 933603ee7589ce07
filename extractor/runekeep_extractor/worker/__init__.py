"""Takes jobs from a server: the stream, leases, attempts, and the output of an engine."""
