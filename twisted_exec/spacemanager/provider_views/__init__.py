"""
SpaceProviderDescs: the provider behind each, its namespace, its status, and a copy of its list of
spaces.
"""
