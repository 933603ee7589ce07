"""SpaceService: exports, imports and erasures of a user's data."""
