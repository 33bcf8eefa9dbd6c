"""Which file of which repository a workload is kept in, as the settings say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from bot.domain.kernel.configured import Section, TargetPatterns
from bot.domain.kernel.target import Target


def _like(pattern: str, wanted: str) -> AfterValidator:
    """Refuses any other text, and says how to write it."""

    def checked(raw: str) -> str:
        if raw and not re.fullmatch(pattern, raw):
            raise ValueError(f"'{raw}' is not {wanted}")
        return raw

    return AfterValidator(checked)


_NAME = r"[A-Za-z0-9_.-]+"
Repository = Annotated[str, _like(f"{_NAME}/{_NAME}", "OWNER/NAME, such as example/deploy")]
FilePath = Annotated[
    str, _like(r"[^/\s?#%\\]+(/[^/\s?#%\\]+)*", "a path from the root of the repository, such as production/llm.yaml")
]
Branch = Annotated[str, _like(f"{_NAME}(/{_NAME})*", "the name of a branch, such as main")]
Place = Annotated[
    str, _like(r"[\w-]+(\.[\w-]+)*", "a list of keys and positions, such as servingEngineSpec.modelSpec.0.replicaCount")
]


class KeptIn(Section):
    """The file that some workloads are kept in: manifests of Kubernetes, or the values of a Helm chart."""

    targets: TargetPatterns = Field(min_length=1)
    """Namespace and workload, with `*`. Of two entries the later one counts."""
    repository: Repository = Field(min_length=1)
    path: FilePath = Field(min_length=1)
    branch: Branch = ""
    """The branch that is deployed; empty: the default branch of the repository."""
    flags: Place = ""
    """Where the values of a chart have the list of flags. Without `flags` and `replicas` the file is a manifest."""
    replicas: Place = ""
    """Where the values of a chart have the number of replicas."""

    @property
    def is_values(self) -> bool:
        return bool(self.flags or self.replicas)

    def __str__(self) -> str:
        return f"{self.repository}: {self.path}"


def file_of(target: Target, files: Sequence[KeptIn]) -> KeptIn | None:
    """Returns the file that the settings name for this target; None if they name none."""
    return next((each for each in reversed(files) if any(target.matches(one) for one in each.targets)), None)
