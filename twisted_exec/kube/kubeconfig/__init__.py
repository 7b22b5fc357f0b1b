"""
Kubeconfig files: load, reload and write them; the resulting ClientConfig.
"""
