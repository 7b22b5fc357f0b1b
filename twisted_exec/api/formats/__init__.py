"""
Formats of objects: JSON, YAML and protobuf.
"""
