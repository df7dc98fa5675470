"""How the stand-in behaves when no rule says otherwise."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """A value that refuses a key it does not know: a misspelt rule must not pass as a rule without effect."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(Strict):
    """What a minute allows, for each model by itself. None: no limit."""

    requests: Positive | None = None
    input_tokens: Positive | None = None
    output_tokens: Positive | None = None
    burst: float = Field(default=1.0, gt=0, description="the part of a minute's allowance that may be used at once")


WHOLE = frozenset({"capacity", "limits", "cache_minimum", "cache_life", "batch_seconds"})
"""Settings of the whole provider: they cannot differ between plans."""


class Config(Strict):
    """The defaults feel like a small model on a good day."""

    seed: int = 0
    ttft: float = Field(default=0.5, ge=0, description="seconds to the first token")
    tokens_per_second: float = Field(default=60, ge=0, description="0: at once")
    jitter: float = Field(default=0.2, ge=0, le=1, description="the part by which both vary, either way")
    capacity: Positive | None = Field(default=None, description="calls in flight above which all become slower")
    answer_tokens: tuple[Positive, Positive] = Field(default=(60, 150), description="size of a default answer")
    limits: Limits = Limits()
    cache_minimum: Positive = Field(default=1024, description="tokens of the shortest prefix that is kept in the cache")
    cache_life: float = Field(default=300, gt=0, description="seconds for which an unused prefix is kept")
    batch_seconds: float | None = Field(default=5, ge=0, description="until a batch is done; 0: at once, null: never")

    @model_validator(mode="after")
    def _sizes_ascend(self) -> Config:
        low, high = self.answer_tokens
        if low > high:
            raise ValueError(f"answer_tokens must ascend, not [{low}, {high}]")
        return self

    def changed(self, changes: dict[str, object]) -> Config:
        """The same with some values replaced, checked as a whole."""
        return Config.model_validate({**self.model_dump(), **changes})
