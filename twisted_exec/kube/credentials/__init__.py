"""
Credentials from outside the kubeconfig: exec plugins and certificates signed through the API
server.
"""
