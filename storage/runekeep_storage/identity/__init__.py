"""Gives the store an identity and refuses a store that vanished, went back in time or was replaced."""
