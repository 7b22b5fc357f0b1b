"""Programs, certificates and tokens that are replaced at work."""
