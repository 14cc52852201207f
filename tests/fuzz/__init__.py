"""Seeded fuzzers that a person can run for an hour; their finds are ordinary tests."""
