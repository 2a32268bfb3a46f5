"""What the read model answers over HTTP, always for one tenant."""
