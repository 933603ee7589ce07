"""Deletes sessions and users, and erases messages and memories with everything derived from them."""
