"""The Kubernetes client: requests, list and watch, exec, credentials that follow their files.

The only package that connects to kube-apiserver. It decodes the fields that it is asked for and does not know
what they mean.
"""
