"""The Work stream: workers, their leases and the jobs that they get."""
