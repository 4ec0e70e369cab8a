"""The past of a job: its steps and metrics over time, by attempt, in bounded memory. Pure, as `jobs`."""
