"""The HTTP API of a kubelet."""
