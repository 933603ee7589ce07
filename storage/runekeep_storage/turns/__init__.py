"""Turn memory: turns, fingerprints, feedback, selections, buckets, and the jobs that fill them."""
