"""State that outlives the process: what is known of each job, in a file of the data directory.

    tracker ─► changed ─► writer: once in half a second, on its own thread ─► SQLite file
    SQLite file ─► load, at the start ─► recollections: by job, until the cluster shows that the job exists

Knows jobs by their identity and their state as bytes, not what is in it.
"""
