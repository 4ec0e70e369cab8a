"""The only room that speaks to kube-apiserver: client, watches, exec; and what its objects mean to us."""
