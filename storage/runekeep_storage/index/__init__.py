"""The vector index, which search uses. It is derived from the relational store and can be rebuilt from it at any
time."""
