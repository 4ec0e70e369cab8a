"""Events on TrainJobs about their runs, such as stalls and failures."""
