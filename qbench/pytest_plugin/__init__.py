"""pytest: every case of a suite is a test, which its gate passes or fails.

hooks   what pytest asks: options, which files are suites, the last lines; imports nothing of qbench until then
items   a suite's file and its cases as pytest's collectors and items; timed calls for pytest-benchmark
checked a model's file, whose faults fail it
judged  the one run behind all items of a suite, and what its gate says of each; shared by xdist's workers
"""
