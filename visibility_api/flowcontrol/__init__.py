"""Who waits for whom: token buckets, per-client queues, deadlines."""
