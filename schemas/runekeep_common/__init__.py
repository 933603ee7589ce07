"""Shared by all processes: telemetry, failpoints, start-up, child processes, addresses, secrets from files."""
