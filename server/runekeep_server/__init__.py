"""The Runekeep server: services, identity, job dispatch, applying of operations, settings, start and drain."""
