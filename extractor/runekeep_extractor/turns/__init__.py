"""Turn jobs answered by a model: fingerprints, signals, selections and buckets."""
