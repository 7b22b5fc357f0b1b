"""Tests of the build of the page's vendored files."""
