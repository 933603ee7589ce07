"""An HTTP proxy in front of an OpenAI- or Anthropic-compatible API.

It adds recalled memory to requests and appends what was said to a session. If memory is away, requests reach the model
all the same. It needs the extra `proxy`.
"""
