"""What is known of a case, and a run read back from disk."""
