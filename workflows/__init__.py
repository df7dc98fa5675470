"""The promises: deterministic workflows."""
