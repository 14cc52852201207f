"""A search for the release, commit or layer that made a case slower or wrong: looks by the gate's own tests, and the
chance that the answer is right."""
