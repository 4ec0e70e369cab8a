"""Asking rank 0: when (`schedule`), through what (`choice`, a module a source), and the loop (`prober`)."""
