"""The client. Written once, as coroutines (`aio`, `aio_session`); `face` gives the same methods to blocking callers."""
