"""Calls of models: one client for budgets, features, outages and records, and one provider for each SDK."""
