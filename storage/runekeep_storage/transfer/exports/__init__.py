"""The format of an exported space: its archive, the rows in it, and their conversion to rows of another space."""
