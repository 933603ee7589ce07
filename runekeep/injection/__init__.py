"""What hooks and the proxy share: how memory enters prompts and leaves what is captured, and the sessions they fill."""
