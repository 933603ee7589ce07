"""What embedders and rerankers share: the client of endpoints with its retries, the pauses after failures, and the
loading of models from files."""
