"""Rules of turn memory: what is merged, selected, shown and stored. Nothing here reads a store or uses the contract."""
