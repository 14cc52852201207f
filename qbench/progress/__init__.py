"""What a reader sees while work goes on, and what a terminal can show."""
