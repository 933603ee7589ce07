"""Tasks: state, progress, extraction records, usage of models."""
