"""The Kubernetes resource path: get, list, watch, tables, selectors and content negotiation."""
