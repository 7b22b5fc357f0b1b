"""``twisted-exec web``: the web console on the user's computer, with the user's kubeconfig."""
