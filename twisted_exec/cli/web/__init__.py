"""
``twisted-exec web``: the web console on this computer, with the credentials of a kubeconfig.
"""
