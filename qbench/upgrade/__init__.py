"""What other versions of libraries do to the cases that they run: to files as they are, and to files built anew."""
