"""The client, with one subfolder for each subject.

Methods are written once, as coroutines; `blocking` makes the same methods for `Client` and `Session`.
"""
