"""Bad days of an installation behind a real kube-apiserver: docs/bad-days.md."""
