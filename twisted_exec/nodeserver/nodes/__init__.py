"""
The Nodes of the root that stand for leaves: plan, worker, controller, status and probes.
"""
