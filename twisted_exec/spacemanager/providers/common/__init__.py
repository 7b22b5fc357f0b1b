"""
Shared code of providers: the cluster they talk to, service accounts, kubeconfigs, watches.
"""
