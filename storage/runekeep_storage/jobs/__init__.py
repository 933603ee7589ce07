"""Jobs of extractors: claims, leases, tasks with their events, budgets, token usage, retention."""
