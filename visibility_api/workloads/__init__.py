"""TrainJobs as the cluster describes them: phase, rank-0 pod, replicas, and where progress is reported.

It joins TrainJobs, JobSets and pods. What is done with the result is decided elsewhere.
"""
