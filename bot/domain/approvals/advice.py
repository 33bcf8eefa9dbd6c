"""Why a change is only advised: the settings say observe-only for it, or a freeze covers its target.

An advised change is planned and shown like any other. Nobody can approve it, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bot.domain.kernel.target import Target


class OnlyAdvice(BaseModel):
    """Why a change is advised, not requested."""

    model_config = ConfigDict(frozen=True)

    reason: Literal["observe_only", "freeze"]
    text: str
    """For people, as a sentence without a capital: `the settings say observe-only for serving/llm`."""


OBSERVE_ONLY = OnlyAdvice(reason="observe_only", text="the settings say observe-only")


@dataclass(frozen=True)
class ObserveRule:
    """One line of the settings; empty names mean all playbooks, or all targets."""

    is_on: bool
    playbook: str = ""
    target: str = ""
    """`namespace/workload` or `cluster/namespace/workload`, with `*`."""

    def is_for(self, playbook: str, target: Target) -> bool:
        is_here = not self.target or target.matches(self.target)
        return is_here and self.playbook in ("", playbook)


@dataclass(frozen=True)
class Observing:
    """Where the bot only observes. A rule with a target counts more than one without; of equals, the later one."""

    rules: Sequence[ObserveRule] = ()

    @property
    def everywhere(self) -> bool:
        """Whether no playbook may change anything on any target."""
        general = [rule for rule in self.rules if not rule.playbook and not rule.target]
        return bool(general) and general[-1].is_on and all(rule.is_on for rule in self._after(general[-1]))

    @property
    def anywhere(self) -> bool:
        return any(rule.is_on for rule in self.rules)

    def is_on(self, playbook: str, target: Target) -> bool:
        found = [rule for rule in self.rules if rule.is_for(playbook, target)]
        counting = [rule for rule in found if rule.target] or found
        return bool(counting) and counting[-1].is_on

    def may_be_on(self, target: Target) -> bool:
        """Whether some playbook only observes this target."""
        names = {rule.playbook for rule in self.rules} | {""}
        return any(self.is_on(name, target) for name in names)

    def _after(self, general: ObserveRule) -> Sequence[ObserveRule]:
        """The rules that count beside this one: all with a target, and later ones without."""
        place = list(self.rules).index(general)
        return [rule for number, rule in enumerate(self.rules) if rule.target or number > place]
