"""What can be seen of a process from outside: spans, by OpenTelemetry, and metrics, by Prometheus.

Not about memory: it lies in the lowest room because every process and every other room uses it, and it knows nothing of
them.
"""
