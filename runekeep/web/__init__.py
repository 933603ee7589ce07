"""What the pages and endpoints that this package serves over HTTP share: where they listen, and how they end."""
