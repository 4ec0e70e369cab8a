"""The whole path, end to end: kubectl, an API server and its aggregator, the server as a process, real pods.

`--cluster=local` (default) runs against localcluster; `--cluster=real` against kube-apiserver and etcd from
KUBEBUILDER_ASSETS, where only the kubelet and the controllers of training jobs are stand-ins.

    test_*.py  ->  workspace (a namespace, its users and jobs), visibility_server (what is under test)
               ->  cluster: local_cluster | real_cluster  ->  kube, kubelet_server, exec_channel, spdy

Faults: exec_faults between API server and pods, tcp_proxy between the server under test and the API server.
"""
