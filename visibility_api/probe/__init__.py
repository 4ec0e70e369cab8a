"""Asking rank 0: when (`schedule`), through what (a module a source), and the loop that asks (`prober`)."""
