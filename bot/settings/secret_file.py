"""A secret in a file, as Kubernetes mounts it: read at each use, so that a rotated one counts without a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from bot.domain.kernel.configured import Secret
from bot.domain.kernel.errors import SecretFileError

IN_A_FILE = "file:/"


class SecretFile(SecretStr):
    """Holds the path in place of the secret."""

    @property
    def path(self) -> Path:
        return Path(self._secret_value.removeprefix("file:"))

    def get_secret_value(self) -> str:
        """Raises `SecretFileError`, also if the file is empty: nothing must not become what a sender has to send."""
        try:
            secret = self.path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SecretFileError(f"'{self.path}' cannot be read: {reason}") from error
        if not secret:
            raise SecretFileError(f"'{self.path}' is empty")
        return secret


def _readable(raw: SecretStr) -> SecretStr:
    if isinstance(raw, SecretFile) or not raw.get_secret_value().startswith(IN_A_FILE):
        return raw
    secret = SecretFile(raw.get_secret_value())
    try:
        secret.get_secret_value()
    except SecretFileError as error:
        raise ValueError(str(error)) from error
    return secret


RotatedSecret = Annotated[Secret, AfterValidator(_readable)]
"""A secret, or `file:/path` of one."""
