"""What an exception says, without what looks like a credential: more people may see the job than its log."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

TEXT_VARIABLE = "TRAINJOB_PROGRESS_ERROR_TEXT"  # 0: the type alone
MAX_TEXT = 2000  # characters that are looked at
_NAME = (
    r"[\w-]{0,40}(?:passw(?:or)?d|passphrase|pwd|secret|token(?!iz|s\b)|credential|auth|cookie"
    r"|(?:api|access|account|private|shared|client)[_-]?key)[\w-]{0,40}"
)
_SAYS = r"(?:passw(?:or)?d|passphrase|(?:api|access|private)[ _-]?key)"
_VALUE = r"(?:b?\"[^\"]*\"|b?'[^']*'|\([^()]*\)|[^\s;'\"]+)"
_SECRETS = (
    (r"-----BEGIN [A-Z ]{0,40}KEY.*", "…"),
    (r"\b([a-z][a-z0-9+.-]{0,30}://)\S*@", r"\1…@"),  # user and password of a URL
    (r"([^\s?'\"]{1,500})\?[^\s'\"]*=[^\s'\"]*", r"\1?…"),  # signatures stand there
    (r"(?<![\w/.:])[\w.-]{1,64}:[^\s/'\"]{1,200}@(?=\w)", "…@"),  # such a user of no URL
    (r"(-u[\s',\"]{1,4}[\w.-]{1,64}:)[^\s'\"]{1,200}", r"\1…"),  # of curl
    (r"(\bmysql\w{0,9}\b.{0,200}?[\s'\"]-p)[^\s'\"]{1,200}", r"\1…"),
    (r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", r"\1 …"),
    (rf"(\b{_NAME}[\"']?\s{{0,8}}[=:]\s{{0,8}})(?!\d{{1,9}}\b|bearer|basic){_VALUE}", r"\1…"),
    (
        r"(\b(?:[\w-]{0,40}[_-])?(?:pass|pin|sig|signature)[\"']?\s{0,8}[=:]\s{0,8})(?!\d{1,3}\b|true|false|…)"
        + _VALUE,
        r"\1…",
    ),
    (r"(\b[\w-]{0,40}(?:passw(?:or)?d|secret)[\"']?\s{0,8}[=:]\s{0,8})\d+", r"\1…"),
    (rf"(\b{_SAYS}\s(?:is\s)?)(?!is\b)(?=\S*[\d'\"]){_VALUE}", r"\1…"),  # in a sentence
    (rf"(--{_NAME}[\"']?[\s,]{{1,4}}){_VALUE}", r"\1…"),  # of a command
    (
        r"\b(?:hf_|sk-|sk_|gh[pousr]_|github_pat_|glpat-|npm_|xox[a-z]-|AKIA|ASIA|AIza|ya29\.|eyJ)[\w./+=-]{8,}",
        "…",
    ),
    (r"\b(?=[a-z+=]*\d)(?=[\d+=]*[a-z])[a-z0-9+=]{32,}", "…"),  # random characters
)


def describe(error: Optional[BaseException]) -> str:
    """An exception's type and the first line of what it says, at most 200 characters."""
    name = type(error).__name__
    if os.environ.get(TEXT_VARIABLE) == "0":
        return name
    try:
        lines = str(error).strip().splitlines()
        return f"{name}: {redact(lines[0])}"[:200] if lines else name
    except Exception:
        return name


def redact(text: str) -> str:
    """The text without what looks like a credential, cut where it is long."""
    import re  # here: importing it takes as long as the package

    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT].rpartition(" ")[0] + " …"  # without the half of a word
    for pattern, instead in _SECRETS:
        text = re.sub(pattern, instead, text, flags=re.IGNORECASE)
    return text
