"""Stage 9: records, a policy and a stored baseline -> verdicts and an exit code, as ``qbench.gate`` gives them."""
