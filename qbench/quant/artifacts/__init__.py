"""What a build saves and a runner loads again, and what is read from it."""
