"""Memory without asking: hooks of coding agents that recall into their prompts and hand in their conversations.

A hook never holds up its agent: it answers within a deadline, with status 0, whatever is down. Conversations are first
put into a spool and handed in by another process.
"""
