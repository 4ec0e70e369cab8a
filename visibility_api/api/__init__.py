"""The Kubernetes API surface: discovery, OpenAPI, get, list, watch, tables, health. One ASGI application.

Reads documents through `store.Store`, identity and verdicts through the two Protocols in `message`.
"""
