"""
Provider ``clusterprofile``: clusters of an inventory, found as ClusterProfiles.
"""
