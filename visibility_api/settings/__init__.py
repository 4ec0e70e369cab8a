"""The settings of `visibility-api serve`: `model` has them all, `reading` finds their values."""

from .model import ENVIRONMENT_PREFIX, SOURCES, Settings
from .reading import SettingsError, read_settings, shown

__all__ = ["ENVIRONMENT_PREFIX", "SOURCES", "Settings", "SettingsError", "read_settings", "shown"]
