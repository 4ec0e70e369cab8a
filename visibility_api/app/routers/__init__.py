"""The FastAPI operations, a router for each subject."""
