"""Probing rank 0: when (`schedule`), through which source (`choice`), once (`probe`), for ever (`prober`)."""
