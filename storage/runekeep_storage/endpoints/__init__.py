"""What embedders and rerankers behind a URL share: the HTTP client with its retries, and the pauses after failures."""
