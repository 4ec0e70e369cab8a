"""What operators look at: Grafana's dashboards (deploy/components), the table in docs/prometheus.md.

`python -m monitoring` (`make monitoring`) writes both; a test finds them outdated.
"""
