"""Where an item goes that nobody knows yet: in the prompt and the payload of a task that stands for a fan-out."""

from __future__ import annotations

from domain.models import Placement

ITEM = Placement(name="item", tasks=())
"""The place in the prompt of such a task where its item goes. No task can have that name."""

ITEM_KEY = "{{ item }}"
"""In a payload, a text with an item in it is a mapping with this one key, to the texts between which the item stands.
No payload of a plan can have such a key."""
