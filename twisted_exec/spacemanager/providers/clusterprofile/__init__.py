"""Provider ``clusterprofile``: clusters of an inventory."""
