"""`visibility-api check`: every link between a user's request and a job's progress."""
