"""What outlives a job: an object of its own and a line of an index, in a directory or an object store."""
