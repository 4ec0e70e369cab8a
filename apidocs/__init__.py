"""Makes the published OpenAPI documents and schemas, from the models and types of the server."""
