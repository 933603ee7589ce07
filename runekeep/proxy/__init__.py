"""An HTTP proxy in front of an OpenAI- or Anthropic-compatible API.

It adds recalled memory to requests and appends what was said to a session. If memory is unavailable, requests reach the
model without it. It needs the extra `proxy`.
"""
