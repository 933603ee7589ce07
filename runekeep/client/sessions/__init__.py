"""Sessions: messages, commits, archives, context."""
