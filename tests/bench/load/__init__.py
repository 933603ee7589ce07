"""Load from another process than the one that measures, and servers that do nothing, to hold it against."""
