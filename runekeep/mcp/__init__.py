"""An MCP server in front of a Runekeep server: `runekeep mcp`.

It calls the public client alone, and keeps nothing between two requests. It needs the extra `mcp`.
"""
