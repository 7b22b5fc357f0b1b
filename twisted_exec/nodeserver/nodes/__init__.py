"""
The Nodes of the root that stand for leaves: plan, worker and controller, addresses, conditions and probes.
"""
