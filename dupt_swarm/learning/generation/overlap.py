"""How much of what was written is in what a person wrote: chrF and BLEU, as sacrebleu computes them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from dupt_swarm.errors import UsageError, install


def lacks_for_overlap() -> str:
    """What to install before scores can be computed, found out without an import; empty: nothing."""
    return "" if find_spec("sacrebleu") else f"scores need sacrebleu; {install('model')}"


def require_overlap() -> None:
    """See beforehand that sacrebleu is installed.

    Raises:
        UsageError: it is not.
    """
    if lacking := lacks_for_overlap():
        raise UsageError(lacking)


def overlap(written: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """ChrF (Popović 2015) and BLEU (Papineni et al. 2002, as Post 2018 has it), 0 to 100, of all together.

    Raises:
        UsageError: sacrebleu is not installed.
    """
    require_overlap()
    import sacrebleu  # an optional package

    return {
        "chrF": float(sacrebleu.corpus_chrf(written, [references]).score),
        "BLEU": float(sacrebleu.corpus_bleu(written, [references]).score),
    }
