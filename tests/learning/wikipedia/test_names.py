"""Dumps and their languages are known by their names."""

import pytest

from dupt_swarm.learning.wikipedia.articles import is_dump, language_of


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("dewiki-20260101-pages-articles.xml.bz2", "de"),
        ("dewiki-latest-pages-articles.xml", "de"),
        ("enwiki-20260101-pages-articles1.xml-p1p41242.bz2", "en"),
        ("enwiki-20260101-pages-articles-multistream27.xml-p1p2.bz2", "en"),
        ("simplewiktionary-20260101-pages-articles.xml.gz", "simple"),
        ("be_x_oldwiki-20260101-pages-articles.xml.bz2", "be_x_old"),
        ("Bat-Smgwiki-20260101-pages-articles.xml", "bat_smg"),
        ("mine-pages-articles.xml", None),
    ],
)
def test_a_dump_says_its_language(name: str, language: str | None) -> None:
    """As a whole or in parts, compressed or not; who renames one may take the language away."""
    assert is_dump(name)
    assert language_of(name) == language


@pytest.mark.parametrize(
    "name",
    [
        "enwiki-20260101-pages-articles-multistream-index.txt.bz2",
        "dewiki-latest-pages-articles.xml.bz2-rss.xml",
        "dewiki-20260101-pages-articles.xml.bz2.part",
        "dewiki-20260101-pages-meta-history.xml.bz2",
        "dewiki-20260101-pages-articles.xml.7z",
        "page.xml",
        "dewiki.txt",
    ],
)
def test_what_is_beside_a_dump_is_none(name: str) -> None:
    """Indexes, feeds, half downloads, whole histories and other XML are passed over."""
    assert not is_dump(name)
    assert language_of(name) is None
