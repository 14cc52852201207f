"""What is measured -> what is shipped, per model, threads and batch size; pure, and nothing else decides.

cases      the settings of a run, and what a case is
qualify    every limit of the suite held against a case, by the gate's own tests
"""
