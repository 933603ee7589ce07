"""TurnMemoryService: turns, their context, feedback, selections and buckets."""
