"""Estimates, intervals and tests; pure, each with its source."""
