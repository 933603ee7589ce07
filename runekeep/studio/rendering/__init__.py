"""How data becomes HTML: templates, Markdown, differences, charts."""
