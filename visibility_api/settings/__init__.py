"""The settings of `visibility-api serve`: `model` has them all, `reading` finds their values."""

from .model import ENVIRONMENT_PREFIX, Settings
from .reading import SettingsError, read_settings, shown

__all__ = ["ENVIRONMENT_PREFIX", "Settings", "SettingsError", "read_settings", "shown"]
