"""Memory types: their fields, the fields' values, and their digest."""
