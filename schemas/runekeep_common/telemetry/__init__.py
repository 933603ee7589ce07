"""Observability of a process: spans by OpenTelemetry, and metrics by Prometheus.

It lies in the lowest package, because every process and every other package uses it. It does not depend on them.
"""
