"""Headers changed in place: what was asked for is read back, and nothing else moved."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_roundtrip import headers

from patchq.authoring.newheader import new_header, rewrite_header
from patchq.patch import Patch, parse_patch

DIFF = b"diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n"
PLAIN = st.text(st.sampled_from("abc éß.,()"), min_size=1, max_size=30).map(str.strip)
PLAIN = PLAIN.filter(lambda text: text[:1].isalpha())
BODIES = st.lists(PLAIN | st.just(""), max_size=5).map(lambda rows: "\n".join(rows).strip("\n"))
BODIES = BODIES.filter(lambda body: "\n\n\n" not in body)
AUTHORS = st.sampled_from(["N Ew <n@e.w>", "Ñ <ñ@e.w>"])


def patch_of(header: bytes) -> Patch:
    return parse_patch("up/device/x.patch", header + DIFF, "x", 1)


@example(b"Subject: :\nOrigin: other\n# a comment\nForwarded: no\nX-Own: kept\n", "a", "b\n\nc", "N Ew <n@e.w>")
@example(b"#\n\n", "a", "", "N Ew <n@e.w>")
@given(headers(), PLAIN, BODIES, AUTHORS)
@settings(max_examples=150, deadline=None)
def test_what_was_asked_for_is_read_back(header: bytes, subject: str, body: str, author: str) -> None:
    old = patch_of(header)
    new = patch_of(rewrite_header(old, subject=subject, body=body, author=author))
    assert (new.header.subject, new.header.body, new.header.author) == (subject, body, author)
    kept = [field for field in old.header.fields if field.key not in ("subject", "description", "author", "from")]
    assert [field.folded for field in kept] == [
        field.folded for field in new.header.fields if field.key not in ("subject", "description", "author", "from")
    ]
    again = rewrite_header(new, subject=subject, body=body, author=author)
    assert patch_of(again).header.message("x") == new.header.message("x")


@given(headers())
@settings(max_examples=60, deadline=None)
def test_nothing_asked_nothing_changed(header: bytes) -> None:
    patch = patch_of(header)
    assert rewrite_header(patch) == patch.header.raw


@given(PLAIN, BODIES, AUTHORS)
def test_a_new_header_says_what_it_was_given(subject: str, body: str, author: str) -> None:
    header = patch_of(new_header(subject, body, author, 1_700_000_000)).header
    assert (header.subject, header.body, header.author) == (subject, body, author)
    assert header.author_date == (1_699_920_000, "+0000")
