"""
Stores of closed recordings: a directory, or an S3-compatible bucket.
"""
