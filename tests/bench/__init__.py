"""Benchmarks: each prints a table for people and, as its last line, JSON. Figures are kept under docs/bench/."""
