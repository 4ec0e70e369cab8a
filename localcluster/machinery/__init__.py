"""What all rooms share, as apimachinery and client-go are shared: objects, resources, errors, a client.

The API server and the kubelet also share one interface, node_agent.py: exec and logs of a pod's containers.
"""
