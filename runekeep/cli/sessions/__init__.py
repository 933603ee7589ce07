"""Commands about sessions: messages, commits, context, transcripts."""
