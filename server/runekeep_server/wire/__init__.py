"""Converts between messages of the contract and records of the store. It contains no rules."""
