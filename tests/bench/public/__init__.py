"""Runs public benchmarks of long-term memory: LoCoMo, LongMemEval and BEAM, with models that you configure."""
