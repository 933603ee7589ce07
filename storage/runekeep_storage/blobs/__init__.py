"""Large values beside the relational store, in a folder or an object store."""
