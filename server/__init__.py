"""What callers may do: services, identity, dispatch of jobs, applying of operations, settings, start and drain."""
