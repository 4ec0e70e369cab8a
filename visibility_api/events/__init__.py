"""Events on TrainJobs: what happens to a run, as the cluster's other tools expect to be told of it."""
