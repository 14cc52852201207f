"""How latency is measured: workers, rounds of short blocks, the stopping rule, estimates."""
