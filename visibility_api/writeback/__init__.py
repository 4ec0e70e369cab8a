"""`--write-back`: a summary of each job's progress in `TrainJob.status.trainerStatus`."""
