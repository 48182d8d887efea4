"""The workbench: pages that only wire views together."""
