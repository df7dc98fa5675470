"""The rules: pure values and pure steps, without a clock, randomness or I/O."""
