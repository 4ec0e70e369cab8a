"""What is known of one job: the reports that count, estimate, conditions, what is remembered.

Pure: no I/O, no clock of its own (every function that needs the time is given it), no Kubernetes object.
"""
