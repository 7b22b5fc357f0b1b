"""
Expected answers of :mod:`tests.apiserver.restriction.test_restrictions`.

A line is a request, and its answer to each of ``IDENTITIES``: the HTTP status, ``!`` when a
restriction and not a role refuses, and in brackets the names (or their number) in a list.
"""
