"""Small dumps of wikis, written as MediaWiki does."""

import bz2
import gzip
from pathlib import Path
from xml.sax.saxutils import escape

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"


def page(title: str, text: str, *, ns: int = 0, more: str = "", model: str = "wikitext") -> str:
    """A page of a dump; ``more`` goes before its revision."""
    return f"""  <page>
    <title>{escape(title)}</title>
    <ns>{ns}</ns>
    <id>7</id>{more}
    <revision>
      <id>8</id>
      <contributor><username>Somebody</username><id>9</id></contributor>
      <comment>a comment</comment>
      <model>{model}</model>
      <format>text/x-wiki</format>
      <text bytes="{len(text)}" xml:space="preserve">{escape(text)}</text>
    </revision>
  </page>
"""


def dump(*pages: str) -> bytes:
    """A whole dump."""
    return (HEAD + "".join(pages) + TAIL).encode()


def write_dump(path: Path, *pages: str) -> Path:
    """A dump, compressed as its name says; bz2 as multistream: head, each page and tail one by one."""
    if path.suffix == ".bz2":
        path.write_bytes(b"".join(bz2.compress(part.encode()) for part in (HEAD, *pages, TAIL)))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(dump(*pages)))
    else:
        path.write_bytes(dump(*pages))
    return path
