"""MemoryService: reads, search, recall, the tree of documents, and direct writes."""
