"""Accounts, their API keys, the audit log, and what each account stores."""
