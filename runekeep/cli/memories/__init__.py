"""Commands about memories: documents, search, recall, changes made by hand."""
