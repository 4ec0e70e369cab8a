"""One owner of the jobs' log, and the replicas that follow it (docs/decisions/0027).

`role` decides which this replica is, by a Lease. The owner serves its log by `streams`; a `follower` takes
it, and passes on what is pushed to it (`forwarding`). Replicas recognise each other by their certificate
(`recognition`)."""
