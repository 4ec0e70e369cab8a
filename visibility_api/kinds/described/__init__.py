"""Kinds that nobody thought of here: a file describes them (`--kinds`)."""
