"""The directory that `capture.environment` puts in front of PYTHONPATH."""
