"""The vector index: what is found by search. Derived from the relational store and rebuilt from it at any time."""
