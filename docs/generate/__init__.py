"""Generates the pages of docs/reference, and the pictures of the README, from the code that they describe."""
