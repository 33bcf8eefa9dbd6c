"""Settings: the model, how it is read, and how its faults are explained."""

from bot.settings.load import FILE_VARIABLE, load_settings
from bot.settings.model import PREFIX, Breaker, Settings
from bot.settings.places import LEAVES, PLAIN_NAMES, VARIABLES

__all__ = ["FILE_VARIABLE", "LEAVES", "PLAIN_NAMES", "PREFIX", "VARIABLES", "Breaker", "Settings", "load_settings"]
