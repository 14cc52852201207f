"""What one artifact answers on several hosts; from the records and predictions of a run."""
