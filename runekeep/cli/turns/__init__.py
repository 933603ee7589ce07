"""Commands about turns: fingerprints, selections, reactions, buckets."""
