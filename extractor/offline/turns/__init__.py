"""What single turns said, read by rules: fingerprints, summaries and buckets. Values are in somebody's own words."""
