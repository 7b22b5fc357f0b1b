"""
Building blocks for kinds: common schemas and validation, printer columns, CEL rules.
"""
