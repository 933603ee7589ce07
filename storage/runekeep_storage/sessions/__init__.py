"""Sessions: messages, appends, archives, context, automatic commits."""
