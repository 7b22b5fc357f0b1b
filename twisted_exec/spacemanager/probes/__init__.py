"""
Probes of kubeconfigs: requests, what their answers mean, and when they are due.
"""
