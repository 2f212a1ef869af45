"""Secrets do not come out again, in whatever they were wrapped; what is none stays readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchq.mask import HIDDEN, mask, mask_values, mask_variables

SECRET = "s3cr3tValue0123456789ABCDEFabcdef"
WRAPPED = [
    f"https://user:{SECRET}@host/path",
    f"https://{SECRET}@host/path.git",
    f"fatal: unable to access 'https://oauth2:{SECRET}@host/x/': nope",
    f"Authorization: Bearer {SECRET}",
    f"authorization: basic {SECRET}",
    f"-H 'Authorization: token {SECRET}'",
    f"API_KEY={SECRET}",
    f"export HF_TOKEN={SECRET}",
    f"--password={SECRET}",
    f"wandb_api_key: {SECRET}",
    f"?access_token={SECRET}&x=1",
    f"ghp_{SECRET}",
    f"hf_{SECRET}",
    f"sk-{SECRET}",
    f"glpat-{SECRET}",
    f"MY_SECRET_THING = {SECRET}",
    f"aws_secret_access_key={SECRET}",
]


@pytest.mark.parametrize("text", WRAPPED)
def test_a_secret_is_hidden(text: str) -> None:
    assert SECRET not in mask(text) and HIDDEN in mask(text)
    assert SECRET not in mask(f"before {text} after") and "after" in mask(f"before {text} after")
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://host/path", "git@host:path", "user@example.org", "tokenizer: fast", "TOKENIZERS_PARALLELISM=false",
        "max_new_tokens=512", "the token count is 5", "1bf9d2d76c244238e8219531c582819a6b407d47",
        "patchq: 3 passed (exit 0)", "secret ${HF_TOKEN}", "def author(self): ...", "num_tokens: 12",
        "pad_token=<|endoftext|>", "eos_token_id: 151645", "add_bos_token=False",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_variables_lose_their_values_by_name() -> None:
    given_ = {
        "HF_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "DB_PASSWORD": "x", "GH_AUTH": "x", "EMPTY_TOKEN": "",
        "TOKENIZERS_PARALLELISM": "false",
        "PATH": "/bin", "http_proxy": "http://me:pw@proxy:1", "HOME": "/root",
    }  # fmt: skip
    hidden = dict.fromkeys(("AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "GH_AUTH", "HF_TOKEN"), HIDDEN)
    plain = {name: given_[name] for name in ("EMPTY_TOKEN", "HOME", "PATH", "TOKENIZERS_PARALLELISM")}
    assert mask_variables(given_) == {**hidden, **plain, "http_proxy": f"http://{HIDDEN}@proxy:1"}
    assert list(mask_variables(given_)) == sorted(given_)


def test_values_are_masked_wherever_they_stand() -> None:
    value = {"a": [f"https://u:{SECRET}@h", 1, None, True, {"b": f"HF_TOKEN={SECRET}"}], "n": 1.5}
    assert SECRET not in str(mask_values(value))
    assert mask_values({"a": [1, None, True]}) == {"a": [1, None, True]}


@given(st.text(max_size=60))
def test_any_text_is_masked_without_harm(text: str) -> None:
    assert isinstance(mask(text), str)
    assert mask(mask(text)) == mask(text)
