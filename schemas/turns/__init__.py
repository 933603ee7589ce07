"""Rules of turn memory: what is merged, chosen, shown and kept. Nothing here reads a store or speaks the contract."""
