"""The Chat Completions API of OpenAI, which many other servers speak."""
