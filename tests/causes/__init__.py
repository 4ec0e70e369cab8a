"""Programs that die, and what they print."""
