"""SessionService: conversations, their context, and commits."""
