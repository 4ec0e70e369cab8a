"""Per-job metrics for Prometheus, at /metrics/jobs: docs/prometheus.md.

`families` is the table of them, `exposition` renders it for the jobs of one replica.
"""
