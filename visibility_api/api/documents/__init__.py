"""The documents as clients see them: encoded, tabulated, listed, watched."""
