"""A secret in a file, as Kubernetes mounts it: read at each use, so that a rotated one counts without a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from bot.domain.kernel.configured import Secret

IN_A_FILE = "file:/"


class SecretFile(SecretStr):
    """Holds the path in place of the secret."""

    @property
    def path(self) -> Path:
        return Path(self._secret_value.removeprefix("file:"))

    def get_secret_value(self) -> str:
        """Raises `OSError`, or `ValueError` if the file is empty: nothing must not become what a sender has to send."""
        if not (secret := self.path.read_text(encoding="utf-8").strip()):
            raise ValueError(f"'{self.path}' is empty")
        return secret


def _readable(raw: SecretStr) -> SecretStr:
    if isinstance(raw, SecretFile) or not raw.get_secret_value().startswith(IN_A_FILE):
        return raw
    secret = SecretFile(raw.get_secret_value())
    try:
        secret.get_secret_value()
    except OSError as error:
        raise ValueError(f"'{secret.path}' cannot be read: {error.strerror}") from error
    return secret


RotatedSecret = Annotated[Secret, AfterValidator(_readable)]
"""A secret, or `file:/path` of one."""
