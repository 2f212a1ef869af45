"""Secrets do not come out again, in whatever they were wrapped; what is none stays readable."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchq.mask import HIDDEN, mask, mask_values, mask_variables, mask_words

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
    f"https://user:p@{SECRET}@host/path",
    f'{{"HF_TOKEN": "{SECRET}"}}',
    f"{{'wandb_api_key': '{SECRET}'}}",
    f'"Authorization": "Bearer {SECRET}"',
    f"password: 'two words {SECRET}'",
    f"Cookie: a=b; session={SECRET}",
    f"Set-Cookie: session={SECRET}",
    f"X-Api-Key: {SECRET}",
    f"PRIVATE-TOKEN: {SECRET}",
    f"train.py --token {SECRET} --x",
    f"--hf-token '{SECRET}'",
    f"-p --api-key {SECRET}",
    f"curl -u me:{SECRET} http://x",
    f"https://x.blob/y?sig={SECRET}&se=1",
    f"machine host login me password {SECRET}",
    f"machine host\n  login me\n  password {SECRET}",
    f"AccountName=x;AccountKey={SECRET};",
    f"SharedAccessSignature={SECRET}",
    f"AIza{SECRET}xy",
    f"dckr_pat_{SECRET}",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----",
    f'{{\\"token\\": \\"{SECRET}\\"}}',
    f"eyJhbGciOiJIUzI1NiJ9.eyJ{SECRET}.{SECRET}",
]


@pytest.mark.parametrize("text", WRAPPED)
def test_a_secret_is_hidden(text: str) -> None:
    assert SECRET not in mask(text) and HIDDEN in mask(text)
    assert SECRET not in mask(f"before {text} after") and "after" in mask(f"before {text} after")
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://host/path", "git@host:path", "user@example.org", "tokenizer: fast", "secretary: Ann",
        "TOKENIZERS_PARALLELISM=false",
        "max_new_tokens=512", "the token count is 5", "1bf9d2d76c244238e8219531c582819a6b407d47",
        "patchq: 3 passed (exit 0)", "secret ${HF_TOKEN}", "def author(self): ...", "num_tokens: 12",
        "pad_token=<|endoftext|>", "eos_token_id: 151645", "add_bos_token=False",
        "--max-new-tokens 512", "--pad-token <|x|>", "--eos-token-id 2", "--tokenizer fast", '"eos_token": "</s>"',
        "--use-token --x", "the token is gone", "'num_tokens': 12", "git@host:path@v1", "--password $PW",
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


def test_a_commands_words_and_named_values_are_seen_together() -> None:
    words = [
        "train",
        "--hf-token",
        SECRET,
        "--lr",
        "1",
        "--max-new-tokens",
        "512",
        "--secret",
        "--x",
        f"K_TOKEN={SECRET}",
    ]
    hidden = ["train", "--hf-token", HIDDEN, "--lr", "1", "--max-new-tokens", "512", "--secret", "--x"]
    assert mask_words(words) == [*hidden, f"K_TOKEN={HIDDEN}"]
    assert mask_values({"argv": words})["argv"] == mask_words(words)
    given_ = {"api_key": SECRET, "x": {"HF_TOKEN": f"a 'b' {SECRET}"}, f"https://u:{SECRET}@h": 1, "pad_token": "<pad>"}
    assert mask_values(given_) == {
        "api_key": HIDDEN, "x": {"HF_TOKEN": HIDDEN}, f"https://{HIDDEN}@h": 1, "pad_token": "<pad>",
    }  # fmt: skip


def test_values_are_masked_wherever_they_stand() -> None:
    value = {"a": [f"https://u:{SECRET}@h", 1, None, True, {"b": f"HF_TOKEN={SECRET}"}], "n": 1.5}
    assert SECRET not in str(mask_values(value))
    assert mask_values({"a": [1, None, True]}) == {"a": [1, None, True]}


@given(st.text(max_size=60))
def test_any_text_is_masked_without_harm(text: str) -> None:
    assert isinstance(mask(text), str)
    assert mask(mask(text)) == mask(text)


PIECES = ["token", "_", "-", "secret", "=", ":", " ", "'", '"', "--", "://", "@", "a", "***", "Authorization", "cookie",
          "Bearer ", ";", "$", "<", "\n", "-u ", "password", "5", "&sig=", "?"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_what_is_masked_once_stays_as_it_is(text: str) -> None:
    assert mask(mask(text)) == mask(text)


@given(
    st.sampled_from(WRAPPED),
    st.text(alphabet="ab \t=:'\"-_.\n/", max_size=12),
    st.text(alphabet="ab \n,;)", max_size=12),
)
def test_a_secret_is_hidden_beside_whatever_stands_there(wrapped: str, before: str, after: str) -> None:
    if before[-1:] in ("", " ", "\n", "\t") and after[:1] in ("", " ", "\n", ",", ")"):
        assert SECRET not in mask(before + wrapped + after)


@pytest.mark.parametrize(
    "piece", [*PIECES, "token_", "secret-", "://a", "--a", "authorization ", "cookie:a;b=", "-u a:"]
)
def test_a_long_line_of_anything_is_masked_in_no_time(piece: str) -> None:
    began = time.process_time()
    mask(piece * (50_000 // len(piece)))
    assert time.process_time() - began < 2
