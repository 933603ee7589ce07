"""What the index must receive: the outbox, rows as points, passages, and the embedder of each space."""
