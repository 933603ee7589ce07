"""Memory for agent frameworks, a module each. A module needs its framework and nothing else beside the client; see
docs/guides/frameworks.md."""
