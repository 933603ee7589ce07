"""Code that both drivers share: the write queue, lists in statements, idempotent requests, the data directory."""
