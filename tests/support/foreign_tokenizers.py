"""Small tokenizers of the kinds that well-known models have, with the same parts in their tokenizer.json.

Each function gives the bytes of the file and the id that ends a text.
"""

import json
from functools import cache
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXT = "Der Bär läuft über die Brücke. The bear walks over the bridge, and 12 cubs walk over the river.\n" * 3
# The patterns of GPT-4 and Llama 3.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())

Made = tuple[bytes, int]


@cache
def gpt2() -> Made:
    """Byte-level BPE; `<|endoftext|>` is the last id."""
    made = _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), [])
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.add_special_tokens(["<|endoftext|>"])
    return _file(made, "<|endoftext|>")


@cache
def smollm() -> Made:
    """Byte-level BPE that cuts digits, with several special tokens, the end of a text first."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    digits = pre_tokenizers.Digits(individual_digits=True)
    cut = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return _file(_byte_level(cut, special), "<|endoftext|>")


@cache
def llama3() -> Made:
    """Byte-level BPE that cuts by a pattern; a template puts a token before each text."""
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made = _byte_level(pre_tokenizers.Sequence([split, bytes_only]), [])
    made.model.ignore_merges = True
    made.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    made.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), _template(made, "<|begin_of_text|>")]
    )
    return _file(made, "<|end_of_text|>")


@cache
def llama2() -> Made:
    """Pieces with bytes to fall back on; a normalizer puts a space before each text."""
    made = _pieces()
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _file(made, "</s>")


@cache
def metaspace() -> Made:
    """The same as newer versions of `transformers` save it: the pre-tokenizer puts the space."""
    made = _pieces()
    made.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    return _file(made, "</s>")


@cache
def gemma() -> Made:
    """Pieces without a space before a text; runs of spaces and lines are tokens that were added."""
    made = _pieces(["▁▁", "▁▁▁"])
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_tokens([AddedToken(token, normalized=False) for token in ("\n\n", "▁▁", "▁▁▁")])
    return _file(made, "</s>")


@cache
def unigram() -> Made:
    """SentencePiece's other model, with bytes to fall back on; it is not supported."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    made.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace("▁", prepend_scheme="always")]
    )
    special = ["<unk>", "<s>", "</s>"]
    made.train_from_iterator(
        [TEXT],
        trainers.UnigramTrainer(
            vocab_size=80, special_tokens=special, unk_token="<unk>", show_progress=False
        ),
    )
    content = json.loads(made.to_str())
    content["model"]["vocab"] += [[piece, -20.0] for piece in BYTE_PIECES]
    content["model"]["byte_fallback"] = True
    return json.dumps(content).encode(), 2


@cache
def openai_gpt() -> Made:
    """Words in lower case; `<unk>` is what the vocabulary lacks, and no token ends a text."""
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder(suffix="</w>")
    letters = [chr(code) for code in range(33, 300)]
    made.train_from_iterator(
        [TEXT, " ".join(letters), "".join(letters)],
        trainers.BpeTrainer(
            vocab_size=500, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
        ),
    )
    content = json.loads(made.to_str())
    content["model"]["vocab"]["\n</w>"] = len(content["model"]["vocab"])
    return json.dumps(content).encode(), content["model"]["vocab"]["\n</w>"]


@cache
def bert_uncased() -> Made:
    """WordPiece of words in lower case, without accents; a template puts a token at either end of a text."""
    return _word_piece(lowercase=True)


@cache
def bert_cased() -> Made:
    """The same of words as they are."""
    return _word_piece(lowercase=False)


KEEPING = {
    "gpt2": gpt2,
    "smollm": smollm,
    "llama3": llama3,
    "llama2": llama2,
    "gemma": gemma,
}
"""Those with which any text survives."""

KINDS = KEEPING | {"metaspace": metaspace, "openai-gpt": openai_gpt}
ENCODERS = {"bert-uncased": bert_uncased, "bert-cased": bert_cased}


def changed(data: bytes, **changes: Any) -> bytes:
    """A tokenizer.json with other tables; those of the model are merged."""
    content = json.loads(data)
    content["model"] |= changes.pop("model", {})
    return json.dumps(content | changes).encode()


def _word_piece(*, lowercase: bool) -> Made:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(code) for code in range(33, 300)]
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    within = "".join(filter(str.isalpha, letters))
    made.train_from_iterator([TEXT, " ".join(letters), within], trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, special.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    return _file(made, "[SEP]")


def _byte_level(cut: Any, special: list[str]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = cut
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300 + len(special),
        special_tokens=special,
        initial_alphabet=ALPHABET,
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    return made


def _pieces(more: list[str] | None = None) -> Tokenizer:
    """BPE over a trained vocabulary to which the bytes and ``more`` are added."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace("▁")
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    trained.train_from_iterator([TEXT], trainer)
    learnt = json.loads(trained.to_str())["model"]
    tokens = [*sorted(learnt["vocab"], key=learnt["vocab"].get), *BYTE_PIECES, *(more or [])]
    made = Tokenizer(
        models.BPE(
            {token: index for index, token in enumerate(tokens)},
            [tuple(pair) for pair in learnt["merges"]] + ([("▁", "▁"), ("▁▁", "▁")] if more else []),
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = _template(made, "<s>")
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", left=1),
        ]
    )
    return made


def _template(made: Tokenizer, token: str) -> Any:
    return processors.TemplateProcessing(
        single=f"{token} $A",
        pair=f"{token} $A {token}:1 $B:1",
        special_tokens=[(token, made.token_to_id(token))],
    )


def _file(made: Tokenizer, end: str) -> Made:
    index = made.token_to_id(end)
    assert index is not None
    return made.to_str(pretty=True).encode(), index
