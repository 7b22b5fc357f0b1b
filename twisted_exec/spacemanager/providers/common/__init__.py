"""
What several providers share: the cluster they talk to, service accounts, kubeconfigs, watches.
"""
