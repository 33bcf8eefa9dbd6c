"""Settings: the model, its loader, and the explanation of its errors."""

from bot.settings.load import FILE_VARIABLE, load_settings
from bot.settings.model import PREFIX, Breaker, Settings
from bot.settings.places import LEAVES, PLAIN_NAMES, VARIABLES

__all__ = ["FILE_VARIABLE", "LEAVES", "PLAIN_NAMES", "PREFIX", "VARIABLES", "Breaker", "Settings", "load_settings"]
