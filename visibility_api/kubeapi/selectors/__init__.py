"""Label and field selectors: parsing, with the API server's own error texts, and matching."""
