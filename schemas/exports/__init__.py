"""The form of an exported space: its archive, the rows in it, and how they become those of another space."""
