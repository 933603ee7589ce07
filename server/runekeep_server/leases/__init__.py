"""Jobs that workers hold: leases and their renewal, the output of workers, verdicts, and what follows a failure."""
