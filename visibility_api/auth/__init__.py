"""Who asks, and whether they may: kubernetes-api.md sections 2 (A) and 3 (Z). Fails closed."""
