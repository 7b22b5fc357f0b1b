"""
Users by OIDC ID token, configured as for kube-apiserver.
"""
