"""Kubeconfig files: load, reload and write them."""
