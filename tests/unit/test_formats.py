"""What a process hands on to the next one, or to another replica: readable one version on, and one back.

tests/vectors/formats.json has the forms of the former version: `python -m tests.unit.test_formats > FILE` in
its checkout.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec.inspect
from msgspec.inspect import NamedTupleType, StructType

from visibility_api.jobs.memory import FORMAT, HISTORY_FORMAT
from visibility_api.jobs.observation import Addition
from visibility_api.jobs.record import State
from visibility_api.replication.frames import Advanced, Beat, Changed, Complete, Hello, Kept, Listed
from visibility_api.store.state_file import SCHEMA_VERSION

FORMER = Path(__file__).parents[1] / "vectors/formats.json"
HANDED_ON = (State, Addition, Hello, Listed, Kept, Complete, Changed, Advanced, Beat)


def forms() -> dict[str, Any]:
    """The fields of every struct in what is handed on, and whether each is required."""
    found: dict[str, Any] = {}

    def walk(of: object) -> None:
        if isinstance(of, StructType | NamedTupleType):
            name = of.cls.__qualname__
            if name in found:
                return
            is_array = not isinstance(of, StructType) or of.array_like
            found[name] = {
                "array": is_array,
                "fields": {each.encode_name: each.required for each in of.fields},
            }
            for each in of.fields:
                walk(each.type)
        elif isinstance(of, msgspec.inspect.Type):
            for each in of.__struct_fields__:
                walk(getattr(of, each))
        elif isinstance(of, tuple):
            for part in of:
                walk(part)

    for each in HANDED_ON:
        walk(msgspec.inspect.type_info(each))
    numbers = {"state": FORMAT, "history": HISTORY_FORMAT, "file": SCHEMA_VERSION}
    return {"numbers": numbers, "forms": found}


def differences(former: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Why one version could not read what the other wrote."""
    found = [] if former["numbers"] == now["numbers"] else ["another number: nothing of before is read"]
    for name, form in former["forms"].items():
        kept = now["forms"].get(name)
        if kept is None or kept["array"] is not form["array"]:
            continue  # what it was in has changed then, or the name alone
        before, after = list(form["fields"]), list(kept["fields"])
        if form["array"] and after[: len(before)] != before:
            found.append(f"{name}: a field may only come at the end; {before} were there")
        if gone := set(before) - set(after):
            found.append(f"{name}: {gone} are gone")
        if new := [
            each for each, is_required in kept["fields"].items() if each not in before and is_required
        ]:
            found.append(f"{name}: {new} need a default")
    return found


def test_state_is_read_one_version_on_and_one_back() -> None:
    assert differences(json.loads(FORMER.read_text()), forms()) == []


def test_a_field_in_the_middle_one_without_a_default_and_one_that_is_gone_are_found() -> None:
    def version(**fields: bool) -> dict[str, Any]:
        return {"numbers": {}, "forms": {"State": {"array": True, "fields": fields}}}

    former = version(a=False, b=False)
    assert differences(former, version(a=False, b=False, c=False)) == []
    for now in (version(a=False, c=False, b=False), version(a=False, b=False, c=True), version(a=False)):
        assert differences(former, now)
    assert differences(former, {**former, "numbers": {"state": 2}})


if __name__ == "__main__":
    print(json.dumps(forms(), indent=1))
