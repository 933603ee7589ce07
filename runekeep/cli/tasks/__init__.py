"""Commands about tasks: state, results, records, usage of models."""
