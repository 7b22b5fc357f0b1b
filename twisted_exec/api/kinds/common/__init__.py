"""
What definitions of kinds share: pieces of schema, validation of common fields, printer columns, CEL rules.
"""
