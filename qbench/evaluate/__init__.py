"""Stage 4: artifacts -> predictions of every example -> scores, flips, differences between runtimes."""
