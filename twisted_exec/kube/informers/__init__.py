"""
Local copies of resources that follow the API server, and the work queues that they feed.
"""
