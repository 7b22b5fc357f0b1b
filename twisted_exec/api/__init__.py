"""
The Kubernetes vocabulary: names, kinds, Status, Table, patches. Pure.
"""
