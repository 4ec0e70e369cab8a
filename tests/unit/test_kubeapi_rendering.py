"""YAML that readers of either version read as the JSON that it was made of."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st
from ruamel.yaml import YAML

from visibility_api.kubeapi.rendering import to_yaml


def read_again(document: Any) -> list[Any]:
    """As PyYAML reads it (version 1.1), and as ruamel does (1.2), like Go's and JavaScript's readers."""
    text = to_yaml(json.dumps(document).encode())
    return [yaml.safe_load(text), YAML(typ="safe").load(text)]


@pytest.mark.parametrize(
    "text", ["1e-05", "12e034", "08", "0o7", "1E5", "+.5", "-1e3", "0x1f", "1_0", "12:30", "no"]
)
def test_a_text_that_looks_like_a_number_stays_a_text(text: str) -> None:
    """Values of a history are such texts, and labels may be: `12e034` is the beginning of a commit's hash."""
    assert read_again({"value": text}) == [{"value": text}] * 2


@pytest.mark.parametrize("text", ["y", "N"])
def test_what_version_1_1_takes_for_a_boolean_is_quoted(text: str) -> None:
    assert to_yaml(json.dumps([text]).encode()) == f"- '{text}'\n".encode()


@given(
    st.lists(
        st.text("0189aeEoOxXbyYnN+-._:~# \n", max_size=8)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.integers()
    )
)
def test_any_document_is_read_as_it_was(document: list[Any]) -> None:
    assert read_again(document) == [document] * 2
