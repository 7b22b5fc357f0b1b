"""Chains over several clusters: leaves, Spaces and brokers."""
