"""The serving certificate: from files, or made, renewed and published by the replicas themselves."""
