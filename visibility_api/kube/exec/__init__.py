"""Running one command in a container, over a WebSocket client of its own (decision 0010)."""
