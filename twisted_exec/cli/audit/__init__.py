"""
``twisted-exec audit``: answers from audit files.
"""
