"""The effects: everything that touches the world, safe to run twice."""
