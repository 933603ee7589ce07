"""Commands about a user's data as a whole: erasure, export, import."""
