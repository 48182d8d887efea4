"""commcanary_lab."""
