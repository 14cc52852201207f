"""A run made again from its own record: the same versions, suite, data and seeds, from nothing that the cache holds."""
