"""Stage 2: Suite -> Plan: which variants are built, which cases are measured, what is skipped and why."""
