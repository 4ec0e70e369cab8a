"""An exception's text becomes the message of a failed run, which more people may see than its log."""

from __future__ import annotations

import pytest

from trainjob_progress.redaction import describe

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"connection to postgres://user:{SECRET}@db:5432/x failed",
        f"postgres://user:p@ss/{SECRET}@db refused",
        f"403 for https://bucket.s3.amazonaws.com/a?X-Amz-Signature={SECRET}&x=1",
        f"password={SECRET}",
        f"DB_PASSWORD: '{SECRET}'",
        f'{{"api_key": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"HF_TOKEN={SECRET} is not valid",
        f"aws_secret_access_key = {SECRET}",
        f"invalid token hf_{SECRET}",
        f"key sk-{SECRET} was revoked",
        f"eyJhbGciOiJIUzI1NiJ9.{SECRET}.x",
        f"Command '['mysql', '--password', '{SECRET}', 'x']' returned 1",
        f"Command 'mysql --db-password {SECRET}' returned 1",
        f"cannot reach admin:{SECRET}@10.0.0.1",
        f"DefaultEndpointsProtocol=https;AccountKey={SECRET}+/==;x=1",
        f"Cookie: session={SECRET}",
        f"x-api-key: {SECRET}",
        f"(1045, \"denied\", {{'passwd': '{SECRET}'}})",
        f"https://user:{'x' * 3000}{SECRET}@host",
        f"{'x1' * 1500} password {SECRET}",
        f"MY_PASS={SECRET}",
        f"DB_PASS: {SECRET}",
        f"pass={SECRET}",
        f"token=b'{SECRET}'",
        f"auth=('u','{SECRET}')",
        "password=48612345hunter2hunter2",
        f"user:pa@{SECRET}@host",
        f"pwd=a,{SECRET}",
        f"password is {SECRET}",
        f"with password {SECRET}",
        f"passwd 'a b {SECRET}'",
        f"passphrase '{SECRET}'",
        f"api-key {SECRET}",
        f"npm_{SECRET}",
        f"sk_live_{SECRET}",
        f"xoxb-123-{SECRET}",
        f"-----BEGIN PRIVATE KEY----- {SECRET}",
        f"SharedAccessSignature=sr=x&sig={SECRET}",
        f"signature={SECRET}",
        f"host/x?X-Amz-Signature={SECRET}&y=1",
        f"curl -u user:{SECRET} http://h",
        f"['curl', '-u', 'user:{SECRET}', 'http://h']",
        f"mysql -p{SECRET}",
        f"['mysql', '-p{SECRET}']",
        f"bad digest 0123456789abcdef0123456789abcdef{SECRET}",
    ],
)
def test_what_looks_like_a_credential_is_cut(text: str) -> None:
    found = describe(ValueError(text))
    assert SECRET not in found
    assert found.startswith("ValueError")
    assert "xxx" not in found


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "/data/models/Meta-Llama-3-8B-Instruct/model-00001-of-00004.safetensors not found",
        "max_tokens=512 exceeds the limit",
        "tokenizer: unknown model bert-base",
        "https://huggingface.co/bert/resolve/main/config.json is gone",
        "num_tokens: 4096, token=0",
        "password authentication failed for user train",
        "git@github.com:org/model is private",
        "Unexpected key(s) in state_dict: layer.0.weight",
        "loss is nan at step 7",
        "bypass=true, pass=3 of 5",
        "tar -xpf data.tar failed",
        "secret santa: unknown dataset",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert describe(ValueError(text)) == f"ValueError: {text}"


@pytest.mark.parametrize("text", ["secret = 12345678", "password=123456", "pin: 4711"])
def test_a_number_may_be_a_secret_as_well(text: str) -> None:
    assert not any(character.isdigit() for character in describe(ValueError(text)))


def test_the_text_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINJOB_PROGRESS_ERROR_TEXT", "0")
    assert describe(ValueError("loss is nan")) == "ValueError"


@pytest.mark.parametrize(
    "piece",
    ["a", "://", "password", "=", "a1", "x-", " ", "'", "token:", "bearer ", "--password", "a:", "a:a@"],
)
def test_no_text_takes_long(piece: str) -> None:
    assert len(describe(ValueError(piece * 100_000))) <= 200  # a pattern that went back and forth would hang
