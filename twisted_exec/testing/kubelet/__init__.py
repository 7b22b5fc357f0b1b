"""
A kubelet without a container runtime: streams end in commands of this host.
"""
