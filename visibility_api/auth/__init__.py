"""Authentication and authorisation of every request, by the rules of `k8s.io/apiserver`. Fails closed."""
