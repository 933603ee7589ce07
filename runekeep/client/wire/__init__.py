"""Converts between Python values and messages of the contract."""
