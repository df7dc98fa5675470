"""What every value is made of, and what every call is counted in: below the vocabulary, so that prices can be in it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """An immutable value. Unknown fields are ignored, so that a newer writer does not stop an older reader."""

    model_config = ConfigDict(frozen=True)


class Usage(Value):
    """Tokens by kind, as the provider bills them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def all(self) -> int:
        """Tokens of every kind."""
        return self.input + self.output + self.cache_read + self.cache_write

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input - other.input,
            output=self.output - other.output,
            cache_read=self.cache_read - other.cache_read,
            cache_write=self.cache_write - other.cache_write,
        )


class Spent(Value):
    """One call to a model: what the provider said that it used, and what it may have used on top."""

    model: str
    usage: Usage = Usage()
    unsettled: Usage = Usage()
    batched: bool = False
    """Whether it went in a batch: what it used costs half, and so does what it may have used."""
