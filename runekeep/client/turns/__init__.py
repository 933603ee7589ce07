"""Turn memory: what single turns said, and what agents are shown of it."""
