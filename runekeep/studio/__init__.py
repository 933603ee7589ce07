"""The studio: pages in a browser that show what is remembered, and why.

It is a client like any other: it calls the public API with the key of whoever uses it. It needs the extra `studio`, so
nothing else of `runekeep` imports it.
"""
