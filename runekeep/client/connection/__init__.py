"""The channel to a server: identity, deadlines, repeats, traces, and errors as exceptions."""
