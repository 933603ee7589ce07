"""What a search finds of what was said, on conversations of the LoCoMo data set, through a real server."""
