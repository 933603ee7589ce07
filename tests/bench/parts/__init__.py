"""The parts of the report: modules with a docstring that says what they measure and `measure(setting)`, which gives
figures. In the order of the page."""

SOAK = "soak"
"""Measured when it is asked for: it takes as many minutes as it is told."""
ORDER = ("appends", "streams", "calls", "commits", "search", "turns", "claims", "process", SOAK)
