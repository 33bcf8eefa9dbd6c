"""Settings: the model, its loader, and the explanation of its errors."""

from bot.settings.load import FILE_VARIABLE, load_settings, load_storage_settings
from bot.settings.model import PREFIX, Breaker, Settings, StorageSettings
from bot.settings.places import LEAVES, PLAIN_NAMES, VARIABLES

__all__ = [
    "FILE_VARIABLE", "LEAVES", "PLAIN_NAMES", "PREFIX", "VARIABLES", "Breaker", "Settings", "StorageSettings",
    "load_settings", "load_storage_settings",
]  # fmt: skip
