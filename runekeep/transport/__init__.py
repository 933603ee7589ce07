"""The way to a server, with keys and certificates: for the client, for the commands, and for extractors alike.

It knows neither the contract nor what is called.
"""
