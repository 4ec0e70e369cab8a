"""The file that --config or VISIBILITY_CONFIG names: YAML, one setting a key, named as its flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource


class FileError(Exception):
    """The file cannot be used; the message is a line for the user."""


class ConfigFile(PydanticBaseSettingsSource):
    """The values in the file. The sources that take precedence name it as `config`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError  # `__call__` gives all values at once

    def __call__(self) -> dict[str, Any]:
        """Raises FileError. A path that is no file is left to the validation of `config`."""
        path = self.current_state.get("config")
        if not path or not Path(path).is_file():
            return {}
        import yaml  # most servers have no such file

        try:
            content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f'--config "{path}": cannot be read: {error}') from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f" in line {mark.line + 1}" if mark is not None else ""
            raise FileError(f'--config "{path}": is not valid YAML{where}') from error
        if not isinstance(content, dict):
            raise FileError(f'--config "{path}": give one setting a line, such as "probe-interval: 30s"')
        names = {name.replace("_", "-"): name for name in self.settings_cls.model_fields}
        # Only names of flags are accepted. Others, `probe_timeout` too, get a blank, which no field has.
        return {names.get(key, f"{key} "): value for key, value in content.items()}
