"""A user's data as a whole: erasure, export and import."""
