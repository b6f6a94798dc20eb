import math
import tomllib
from copy import deepcopy

import pytest
from pydantic import ValidationError

from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.manifest import Inner, Manifest, Model, Schedule
from dupt_swarm.presets import PRESETS, load_preset, manifest_from_preset, sizes_of

SHA256 = "0123456789abcdef" * 4


EVERY_SIZE = [(name, size) for name in PRESETS for size in (None, *sizes_of(name)[1:])]


def preset(name: str, size: str | None = None) -> Manifest:
    rows = load_preset(name, size)["model"]["vocabulary_size"]
    return manifest_from_preset(
        name, name="s", seed=7, tokenizer_sha256=SHA256, vocabulary_size=rows, size=size
    )


def tables() -> dict:
    """The tiny preset as nested tables, to be changed by a test."""
    return deepcopy(preset("tiny").model_dump())


def with_changes(changes: dict) -> dict:
    """The tiny preset's tables with these keys, or keys of tables."""
    found = tables()
    for name, value in changes.items():
        found[name] = found[name] | value if isinstance(value, dict) else value
    return found


def toml_of(value: dict) -> str:
    """Plain TOML with the keys in the order of ``value``."""
    lines = [f"{key} = {_scalar(item)}" for key, item in value.items() if not isinstance(item, dict)]
    for key, item in value.items():
        if isinstance(item, dict):
            lines += [f"[{key}]", *(f"{inner} = {_scalar(leaf)}" for inner, leaf in item.items())]
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def message_of(changed: dict) -> str:
    """What a user is told about these tables, read as a file called run.toml."""
    with pytest.raises(ManifestError) as caught:
        Manifest.parse(toml_of(changed))
    return str(caught.value)


@pytest.mark.parametrize(("name", "size"), EVERY_SIZE)
def test_toml_round_trip(name: str, size: str | None) -> None:
    """A manifest written as TOML and read back is the same manifest, with the same text and hash."""
    manifest = preset(name, size)
    read = Manifest.parse(manifest.to_toml())
    assert read == manifest
    assert read.sha256 == manifest.sha256
    assert read.to_toml() == manifest.to_toml()


def test_any_text_survives_toml() -> None:
    """Characters that JSON spells as two escapes, or leaves as they are, are read back from TOML."""
    awkward = '🐻 naïve \x7f\x85\u2028\u202e\U0010ffff \\U0001f43b "\n\x1b'
    changed = with_changes({"objective": {"kind": "classification", "labels": ["🐻", "bär \x7f"]}})
    changed["model"]["vocabulary_size"] += 64  # rows for the task's special tokens
    for each in (with_changes({"offer": {"digest": SHA256, "title": awkward}}), changed):
        manifest = Manifest.model_validate(each)
        assert Manifest.parse(manifest.to_toml()) == manifest
        assert all(map(str.isprintable, manifest.to_toml().splitlines()))


def test_every_key_is_written_with_a_comment() -> None:
    """Each line that sets a key says in a comment what it means."""
    lines = [line for line in preset("tiny").to_toml().splitlines() if "=" in line.partition("#")[0]]
    assert [line for line in lines if not line.partition("  # ")[2]] == []
    assert len(lines) > 30


def test_canonical_bytes() -> None:
    """What is hashed is JSON with sorted keys, all defaults, and no white space."""
    canonical = preset("tiny").canonical_bytes()
    assert canonical.startswith(
        b'{"admission":{"kind":"open","organiser":""},"aggregation":{"rule":"agreeing_mean"},'
    )
    assert b" " not in canonical
    assert canonical == Manifest.from_bytes(canonical).canonical_bytes()


def test_a_manifest_may_name_the_state_of_round_0() -> None:
    """Named, it is part of the swarm's identity."""
    manifest = preset("tiny")
    begun = Manifest.model_validate(manifest.model_dump() | {"initial_digest": SHA256})
    assert begun.sha256 != manifest.sha256
    assert Manifest.from_bytes(begun.canonical_bytes()) == Manifest.parse(begun.to_toml()) == begun
    assert "initial_digest" in message_of(tables() | {"initial_digest": "ABC"})


def test_hash_ignores_spelling() -> None:
    """5, 5.0 and 5e0, -0.0 and 0.0, a default given or left out, and the order of keys hash alike."""
    manifest = preset("tiny")
    changed = tables()
    changed["rounds"]["matchmaking_seconds"] = 5  # an int, and the default
    changed["model"]["dropout"] = -0.0
    del changed["rounds"]["chunk_seconds"], changed["limits"], changed["inner"]["beta1"]
    reordered = dict(reversed(list(changed.items())))
    reordered["inner"] = dict(reversed(list(reordered["inner"].items())))
    assert Manifest.parse(toml_of(changed)).sha256 == manifest.sha256
    assert Manifest.parse(toml_of(reordered)).sha256 == manifest.sha256
    spelled = manifest.to_toml().replace("max_round_seconds = 60.0", "max_round_seconds = 6e1")
    assert spelled != manifest.to_toml()
    assert Manifest.parse(spelled).sha256 == manifest.sha256


CHANGED = {
    float: lambda value: value + 0.0625,
    int: lambda value: value * 2 or 1,
    bool: lambda value: not value,
}
# Where that would be out of range, or no change.
CHANGED_TO = {
    ("encoding", "feedback"): 0.5,
    ("model", "heads"): 2,
    ("model", "norm_epsilon"): 1e-3,
    ("model", "encoder_layers"): 3,
    ("rounds", "tokens_per_step"): 512,
    **{(name, key): 0.5 for name in ("inner", "outer") for key in ("beta1", "beta2", "momentum")},
}
# What goes with it: some have a meaning with one model and objective only.
MASKED: dict[str, dict[str, object]] = {
    "model": {"bidirectional": True},
    "objective": {"kind": "mlm"},
    "inner": {"embedding_scale": "own"},
}

PAIRS: dict[str, dict[str, object]] = {
    "model": {"encoder_layers": 2, "placement": "pre"},
    "objective": {"kind": "seq2seq"},
    "inner": {"embedding_scale": "own"},
}
BESIDES: dict[str, dict[str, dict[str, object]]] = {
    **dict.fromkeys(("bidirectional", "masked_share", "whole_words", "nsp"), MASKED),
    **dict.fromkeys(("encoder_layers", "label_smoothing"), PAIRS),
}


def test_every_leaf_changes_the_hash() -> None:
    """Each single number, when changed, makes another swarm."""
    rotary = tables()
    rotary["model"]["positions"] = "rotary"  # else it has no base
    hashes = {Manifest.model_validate(rotary).sha256}
    count = 0
    for name, table in rotary.items():
        for key, value in table.items() if isinstance(table, dict) else ():
            if isinstance(value, str | list):
                continue
            changed = deepcopy(rotary)
            for other, keys in BESIDES.get(key, {}).items():
                changed[other] |= keys
            changed[name][key] = CHANGED_TO.get((name, key)) or CHANGED[type(value)](value)
            if key == "vocabulary_size":
                changed["model"][key] = changed["tokenizer"][key] = changed[name][key]
            hashes.add(Manifest.model_validate(changed).sha256)
            count += key != "vocabulary_size"
    assert len(hashes) == 1 + count + 1


def test_swarm_id() -> None:
    """The swarm id is the name and the first twelve digits of the hash."""
    manifest = preset("tiny")
    assert manifest.swarm_id == f"s-{manifest.sha256[:12]}"


def test_gpt1_is_the_papers() -> None:
    """The preset gpt1 has the numbers of Radford et al. 2018, section 4.1."""
    manifest = preset("gpt1")
    expected_model = Model(
        vocabulary_size=40_000 + 256 + 1,
        context_length=512,
        layers=12,
        heads=12,
        width=768,
        hidden_width=3072,
        placement="post",
        dropout=0.1,
        init_std=0.02,
    )
    expected_inner = Inner(
        optimizer="adamw",
        learning_rate=2.5e-4,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        weight_decay=0.01,
        clip_norm=0.0,
        embedding_scale="model",  # ours: the paper's Adam has one corpus
    )
    assert manifest.model == expected_model
    assert manifest.inner == expected_inner
    assert manifest.schedule.warmup_updates == 2000
    assert manifest.schedule.final_ratio == 0.0
    assert manifest.rounds.tokens_per_step == 64 * 512


def test_the_transformer_is_the_papers() -> None:
    """The preset transformer has the numbers of Vaswani et al. 2017, sections 3 and 5: the base model."""
    manifest = preset("transformer")
    model, inner, updates = manifest.model, manifest.inner, manifest.schedule.warmup_updates + 1
    assert model == preset("transformer", "65m").model
    assert (model.encoder_layers, model.layers, model.width, model.hidden_width) == (6, 6, 512, 2048)
    assert (model.heads, model.head_width, model.vocabulary_size, model.dropout) == (8, 64, 37_000, 0.1)
    assert (model.positions, model.placement, model.feed_forward) == ("sinusoidal", "post", "relu")
    assert model.tie_embeddings and round(model.numel / 1e6) == 63  # the paper counts 65
    assert (manifest.objective.kind, manifest.objective.label_smoothing) == ("seq2seq", 0.1)
    assert (inner.optimizer, inner.beta1, inner.beta2, inner.epsilon) == ("adamw", 0.9, 0.98, 1e-9)
    assert updates == 4000 and inner.learning_rate == pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-3)
    assert manifest.rounds.tokens_per_step == 1024 * model.context_length


def test_all_tiny_sizes_have_one_schedule() -> None:
    """That of the preset tiny, which was measured, and nothing of a paper's."""
    tiny = [preset(name, size) for name, size in EVERY_SIZE if size == "tiny"]
    assert len(tiny) == len(PRESETS) - 2  # `tiny` itself and `gpt1` have no sizes
    assert {manifest.schedule for manifest in tiny} == {preset("tiny").schedule}


@pytest.mark.parametrize(("name", "size"), EVERY_SIZE)
def test_presets_leave_time_for_a_round(name: str, size: str | None) -> None:
    """In every preset a group can form, and go on without a silent sender, before the time is up."""
    rounds = preset(name, size).rounds
    assert rounds.matchmaking_seconds + 2 * rounds.chunk_seconds < rounds.max_round_seconds
    assert 2 * rounds.chunk_seconds < rounds.allreduce_seconds


@pytest.mark.parametrize(("name", "size"), EVERY_SIZE)
def test_defaults_are_what_ships(name: str, size: str | None) -> None:
    """A manifest that says nothing of exchange, encoding and rule has those of all presets."""
    shipped = preset(name, size)
    changed = shipped.model_dump()
    del changed["rounds"]["exchange"], changed["encoding"], changed["aggregation"]
    assert Manifest.model_validate(changed) == shipped


def test_unknown_preset() -> None:
    """An unknown preset is a usage error that lists the known ones."""
    with pytest.raises(UsageError) as caught:
        load_preset("gpt5")
    assert str(caught.value) == f"unknown preset `gpt5`; choose one of {', '.join(PRESETS)}"
    with pytest.raises(UsageError, match="no size `7b`; choose one of 160m, tiny, 60m, 1b"):
        load_preset("llama", "7b")
    with pytest.raises(UsageError, match="no size `tiny`; it has one only, so give none"):
        load_preset("gpt1", "tiny")


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        ("", "lr", "unknown key `lr`; did you mean `inner.learning_rate`?"),
        ("inner", "lr", "unknown key `inner.lr`; did you mean `inner.learning_rate`?"),
        ("outer", "lr", "unknown key `outer.lr`; did you mean `outer.learning_rate`?"),
        ("outer", "wd", "unknown key `outer.wd`; did you mean `outer.weight_decay`?"),
        ("model", "n_layer", "unknown key `model.n_layer`; did you mean `model.layers`?"),
        ("model", "block_size", "unknown key `model.block_size`; did you mean `model.context_length`?"),
        ("model", "dropuot", "unknown key `model.dropuot`; did you mean `model.dropout`?"),
        ("rounds", "overlaps", "unknown key `rounds.overlaps`; did you mean `rounds.overlap`?"),
        ("model", "strategy", "unknown key `model.strategy`; did you mean `rounds.strategy`?"),
        ("", "modell", "unknown key `modell`; did you mean `model`?"),
        ("", "strategi", "unknown key `strategi`; did you mean `rounds.strategy`?"),
        ("model", "zzz", "unknown key `model.zzz`; remove it"),
    ],
)
def test_unknown_keys(table: str, key: str, expected: str) -> None:
    """An unknown key is named, with the key that was probably meant."""
    changed = tables()
    (changed[table] if table else changed)[key] = 1
    assert message_of(changed) == f"run.toml: {expected}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"model": {"heads": 3}},
            "`model`: heads = 3 does not divide width = 256; choose a width that is a multiple of 3",
        ),
        (
            {"schedule": {"warmup_updates": 20_000}},
            "`schedule`: warmup_updates = 20000 must be less than total_updates = 20000",
        ),
        (
            {"tokenizer": {"vocabulary_size": 5000}},
            "model.vocabulary_size = 4096 is less than tokenizer.vocabulary_size = 5000; use at least that",
        ),
        (
            {"objective": {"kind": "similarity"}},
            "model.vocabulary_size = 4096 is less than tokenizer.vocabulary_size + 3 = 4099; "
            "use at least that",
        ),
        (
            {"tokenizer": {"end_of_text": 4096}},
            "`tokenizer`: end_of_text = 4096 is none of the vocabulary_size = 4096 ids; "
            "give the tokenizer's own",
        ),
        (
            {"inner": {"optimizer": "none"}},
            'inner.optimizer = "none" does not go with rounds.strategy = "diloco"; '
            '`diloco` takes "adamw" or "sgd" or "muon", `gradient` takes "none"',
        ),
        (
            {"rounds": {"strategy": "gradient"}},
            'inner.optimizer = "muon" does not go with rounds.strategy = "gradient"; '
            '`diloco` takes "adamw" or "sgd" or "muon", `gradient` takes "none"',
        ),
        (
            {"inner": {"learning_rate": 0}},
            '`inner`: learning_rate = 0 with optimizer = "muon" trains nothing; give a positive one',
        ),
        (
            {"rounds": {"tokens_per_step": 30_000}},
            "rounds.tokens_per_step = 30000 exceeds rounds.tokens_per_round = 20480; raise the latter",
        ),
        (
            {"rounds": {"tokens_per_step": 127}},
            "rounds.tokens_per_step = 127 is less than one sequence; use at least model.context_length = 128",
        ),
        (
            {"rounds": {"allreduce_seconds": 10}},
            "`rounds`: allreduce_seconds = 10 leaves no time to go on without a silent sender; "
            "choose more than 2 × chunk_seconds = 10",
        ),
        (
            {"tokenizer": {"sha256": SHA256.upper()}},
            "`tokenizer.sha256`: must be 64 lower-case hexadecimal digits; `dupt-peer new` fills it in",
        ),
        (
            {"name": "a.b"},
            "`name`: use 1 to 40 letters, digits and hyphens, beginning with a letter or digit",
        ),
        ({"model": {"layers": 0}}, "`model.layers` = 0: input should be greater than or equal to 1"),
        ({"model": {"layers": 2.0}}, "`model.layers` = 2.0: input should be a valid integer"),
        (
            {"inner": {"learning_rate": "3e-4"}},
            "`inner.learning_rate` = '3e-4': input should be a valid number",
        ),
        (
            {"inner": {"learning_rate": float("nan")}},
            "`inner.learning_rate` = nan: input should be a finite number",
        ),
        ({"limits": {"max_norm_ratio": 1}}, "`limits.max_norm_ratio` = 1: input should be greater than 1"),
        (
            {"encoding": {"average": "two_bit"}},
            "`encoding.average` = 'two_bit': input should be 'fp32', 'scaled_fp16', 'int8' or 'int4'",
        ),
        (
            {"aggregation": {"rule": "agreeing_mean"}, "rounds": {"exchange": "reduce"}},
            'aggregation.rule = "agreeing_mean" needs whole contributions, and with rounds.exchange = '
            '"reduce" members see parts of them; choose exchange = "share", or rule = "mean" where members '
            "trust one another",
        ),
        (
            {"codec": "fp32"},  # as manifests had it before there was error feedback
            'unknown key `codec`; it is now a table [encoding], with contribution = "…" and average = "…"',
        ),
    ],
)
def test_impossible_values(changes: dict, expected: str) -> None:
    """Each impossible value or combination gives one line: where, what, and what to do."""
    assert message_of(with_changes(changes)) == f"run.toml: {expected}"


def test_rows_without_a_token() -> None:
    """W_e may have more rows than the tokenizer has ids, so that matrices have handy shapes."""
    changed = tables()
    changed["model"]["vocabulary_size"] += 64
    changed["tokenizer"]["end_of_text"] = 2
    manifest = Manifest.model_validate(changed)
    assert Manifest.parse(manifest.to_toml()) == manifest


def test_missing_key() -> None:
    """A missing key is named, and so is a missing table."""
    changed = tables()
    del changed["model"]["layers"], changed["schedule"]
    assert message_of(changed).splitlines() == [
        "run.toml: `model.layers` is missing; add it",
        "run.toml: `schedule` is missing; add it",
    ]


def test_all_problems_are_told_at_once() -> None:
    """Several problems give several lines, not one after the other."""
    changed = tables()
    changed["model"]["n_head"] = 4
    changed["rounds"]["tokens_per_round"] = 0
    assert len(message_of(changed).splitlines()) == 2


def test_broken_files(tmp_path) -> None:
    """Broken TOML, broken bytes, text that is not UTF-8 and a missing file are manifest errors."""
    with pytest.raises(ManifestError, match=r"run\.toml: not valid TOML: .*; fix that line"):
        Manifest.parse("name = ")
    with pytest.raises(ManifestError, match=r"the swarm's manifest: not valid JSON"):
        Manifest.from_bytes(b"\xff{")
    with pytest.raises(ManifestError, match=r"cannot be read: .*`dupt-peer new` writes one"):
        Manifest.load(tmp_path / "none.toml")
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="cannot be read"):
        Manifest.load(tmp_path / "run.toml")


def test_huge_numbers_are_refused() -> None:
    """An integer beyond every float is a manifest error, not an overflow."""
    assert "inner.learning_rate" in message_of(with_changes({"inner": {"learning_rate": 10**400}}))
    assert "seed" in message_of(with_changes({"seed": 1 << 63}))


def test_load_reads_what_to_toml_wrote(tmp_path) -> None:
    """A manifest file on disk is read back as it was."""
    manifest = preset("gpt1")
    (tmp_path / "run.toml").write_text(manifest.to_toml(), encoding="utf-8")
    assert Manifest.load(tmp_path / "run.toml") == manifest
    assert tomllib.loads(manifest.to_toml()) == manifest.model_dump()


def test_difference() -> None:
    """The first differing key is named with both values; equal manifests differ in nothing."""
    mine = preset("tiny")
    other = Manifest.model_validate(with_changes({"rounds": {"overlap": False}}))
    assert mine.difference(preset("tiny")) == ""
    assert mine.difference(other) == "`rounds.overlap` is True here and False there"
    assert other.difference(mine) == "`rounds.overlap` is False here and True there"


def test_frozen() -> None:
    """Neither a manifest nor a table of it can be changed."""
    manifest = preset("tiny")
    with pytest.raises(ValidationError):
        manifest.name = "other"
    with pytest.raises(ValidationError):
        manifest.model.layers = 5


def growing(strategy: str = "diloco", growth: float = 1.5) -> Manifest:
    """Rounds of 1, 1, 2, 3, 5, 7 and then 10.5 inner steps of a thousand tokens, unless ``growth`` is 1."""
    rounds = {"strategy": strategy, "growth": growth, "tokens_per_step": 1000, "tokens_per_round": 10500}
    inner = {"optimizer": "adamw" if strategy == "diloco" else "none"}
    return Manifest.model_validate(with_changes({"rounds": rounds, "inner": inner}))


def test_rounds_grow_until_they_are_whole() -> None:
    """Round r has growthʳ inner steps, rounded down, until that is a whole round; 1: all are whole."""
    thousands = [growing().tokens_per_round(round) / 1000 for round in range(9)]
    assert thousands == [1, 1, 2, 3, 5, 7, 10.5, 10.5, 10.5]
    assert growing().tokens_per_round(10**12) == 10500
    assert growing(growth=1.0).tokens_per_round(0) == 10500
    assert growing().weight_limit(3) == growing().limits.max_weight_ratio * 3000


def test_the_first_update_of_a_round() -> None:
    """The schedule counts the whole inner steps of all rounds before, or rounds with `gradient`."""
    assert [growing().first_update(round) for round in range(9)] == [0, 1, 2, 4, 7, 12, 19, 29, 39]
    assert [growing(growth=1.0).first_update(round) for round in (0, 1, 7)] == [0, 10, 70]
    assert [growing().updates_in_round(round) for round in (0, 3, 8)] == [1, 3, 10]
    assert [growing("gradient").first_update(round) for round in (0, 3, 8)] == [0, 3, 8]
    assert growing("gradient").updates_in_round(8) == 1
    assert growing().first_update(10**12) == 19 + (10**12 - 6) * 10


def test_rounds_that_hardly_grow_are_refused() -> None:
    """A growth of less than one per cent is refused: the number of growing rounds is bounded."""
    said = message_of(with_changes({"rounds": {"growth": 1.001}}))
    assert "rounds.growth" in said and "at least 1.01" in said


def test_what_follows_from_the_limits() -> None:
    """How heavy a contribution may be, and how long a round and its end may take, follow from the tables."""
    changed = tables()
    changed["limits"]["max_weight_ratio"], changed["rounds"]["tokens_per_round"] = 2.5, 2048
    changed["rounds"] |= {"max_round_seconds": 100.0, "matchmaking_seconds": 7.0, "allreduce_seconds": 30.0}
    manifest = Manifest.model_validate(changed)
    assert manifest.weight_limit(100) == 5120.0
    assert (manifest.rounds.ending_seconds, manifest.rounds.limit_seconds) == (77.5, 177.5)


@pytest.mark.parametrize("final_ratio", [0.0, 0.1, 1.0])
def test_schedule_is_a_warmup_and_a_cosine(final_ratio: float) -> None:
    """The factor climbs linearly to 1, and then follows the cosine to within 1e-12."""
    schedule = Schedule(warmup_updates=10, total_updates=1010, final_ratio=final_ratio)
    assert [schedule.factor(update) for update in range(10)] == [(n + 1) / 11 for n in range(10)]
    for step in range(4001):
        update = 10 + step / 4
        cosine = 0.5 * (1 + math.cos(math.pi * (update - 10) / 1000))
        expected = final_ratio + (1 - final_ratio) * cosine
        assert abs(schedule.factor(update) - expected) <= 1e-12
        assert 0.0 <= schedule.factor(update) <= 1.0


def test_schedule_stays_at_its_end() -> None:
    """After the last update the factor is the final ratio, and never negative."""
    schedule = Schedule(warmup_updates=0, total_updates=10, final_ratio=0.0)
    assert schedule.factor(0) == 1.0
    assert schedule.factor(10) == 0.0
    assert schedule.factor(1e9) == 0.0
    assert Schedule(warmup_updates=0, total_updates=10, final_ratio=0.25).factor(11) == 0.25


def test_a_constant_rate_with_a_linear_decay() -> None:
    """Warm-up, then the peak for as long as it says, then a straight line to the end."""
    schedule = Schedule(decay="linear", warmup_updates=4, constant_updates=10, total_updates=34)
    assert [schedule.factor(update) for update in (0, 4, 13.5, 14, 19, 24, 34, 99)] == [
        *(0.2, 1.0, 1.0, 1.0, 0.75, 0.5, 0.0, 0.0)
    ]
    with pytest.raises(ValidationError, match=r"\+ constant_updates = 10 must be less than"):
        Schedule(warmup_updates=4, constant_updates=10, total_updates=14)


def test_the_inverse_square_root_is_the_papers() -> None:
    """After w - 1 warm-up updates it is √w · min(step^-0.5, step · w^-1.5), for steps from 1 on."""
    w = 4000
    schedule = Schedule(decay="inverse_sqrt", warmup_updates=w - 1, total_updates=100_000)
    for step in (1, 100, 3999, 4000, 4001, 16_000, 10**6):
        expected = math.sqrt(w) * min(step**-0.5, step * w**-1.5)
        assert schedule.factor(step - 1) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "pre"}, 'write placement = "pre"'),
        ({"kv_heads": 3}, "kv_heads = 3 does not divide heads = 4; choose a divisor, or 0"),
        ({"positions": "rotary", "heads": 256}, "width ÷ heads = 1 is odd"),
        ({"positions": "sinusoidal", "width": 255, "heads": 5}, "needs an even width"),
        ({"positions": "learned", "rotary_base": 500.0}, 'no meaning with positions = "learned"'),
    ],
)
def test_parts_that_do_not_go_together(changes: dict, message: str) -> None:
    """The message names the key and the remedy."""
    assert message in message_of(with_changes({"model": changes}))


def test_as_many_key_value_heads_as_heads_is_one_swarm() -> None:
    """Whether it is written out or not, the manifest is the same."""
    same = [with_changes({"model": {"kv_heads": heads}}) for heads in (0, tables()["model"]["heads"])]
    assert len({Manifest.model_validate(each).sha256 for each in same}) == 1


def test_a_swarm_may_offer_text() -> None:
    """By the digest of its shards; without one there is nothing, and all bring their own."""
    assert not preset("tiny").offer
    offer = {"digest": SHA256, "title": "W", "licence": "CC0"}
    offering = Manifest.model_validate(with_changes({"offer": offer}))
    assert offering.offer
    assert offering.offer.described == "W (CC0)"
    assert offering.swarm_id != preset("tiny").swarm_id
    assert Manifest.parse(offering.to_toml()) == offering


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offer": {"digest": "abc"}}, "64 lower-case hexadecimal digits"),
        ({"offer": {"digest": SHA256, "title": "x" * 201}}, "at most 200 characters"),
        ({"offer": {"digest": SHA256}, "objective": {"kind": "similarity"}}, "leave the offer out"),
    ],
)
def test_an_offer_that_does_not_fit_is_refused(changes: dict, said: str) -> None:
    """A task is learnt from labelled examples, not from text."""
    changed = with_changes(changes)
    changed["model"]["vocabulary_size"] += 3
    with pytest.raises(ValidationError, match=said):
        Manifest.model_validate(changed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model": {"bidirectional": True}},
            "is learnt by a model of kind decoder, and this one is of kind encoder",
        ),
        (
            {"objective": {"kind": "mlm"}},
            "is learnt by a model of kind encoder, and this one is of kind decoder",
        ),
        (PAIRS | {"objective": {"kind": "mlm"}}, "of kind encoder, and this one is of kind encoder-decoder"),
        (MASKED | {"inner": {"embedding_scale": "model"}}, "this model is of kind encoder; choose"),
        (MASKED | {"model": {"bidirectional": True, "tie_embeddings": False}}, "whose head is tied to W_e"),
        (
            MASKED | {"objective": {"kind": "mlm", "label_smoothing": 0.1}},
            'label_smoothing is for kind = "seq2seq"',
        ),
        ({"objective": {"nsp": True}}, 'nsp is for kind = "mlm", not "lm"'),
        (PAIRS | {"model": {"encoder_layers": 2}}, 'with encoder_layers choose "post" or "pre"'),
        (
            PAIRS | {"objective": {"kind": "classification", "labels": ["a", "b"]}},
            "for a decoder or an encoder",
        ),
        (MASKED | {"objective": {"kind": "similarity"}}, "an encoder does not continue texts; choose 0"),
        (PAIRS | {"offer": {"digest": "0" * 64}}, "is learnt from tables of examples; leave the offer out"),
    ],
)
def test_a_model_and_what_it_learns_go_together(changes: dict, said: str) -> None:
    """What a manifest asks for can be learnt by its model; the error says what to change."""
    assert said in message_of(with_changes(changes))
