"""
The HTTP API of a kubelet: streams, logs, ``/run``, lists of Pods, statistics and metrics.
"""
