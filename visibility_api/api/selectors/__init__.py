"""Label and field selectors: parsed with the API server's own words, and matched (L15 to L17)."""
