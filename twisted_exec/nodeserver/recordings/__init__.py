"""Recordings of sessions in Pods."""
