"""The crash proof: plans on a real server, faults on purpose, and a separate program that judges what is left.

`python -m proof` injects and tells (`make prove`). `python -m proof.check NOTE` judges: it reads the simulator's bill,
the event logs and the store as plain files, and knows none of our code.
"""
