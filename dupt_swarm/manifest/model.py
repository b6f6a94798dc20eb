"""The table `[model]`: what the model is made of."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from dupt_swarm.manifest.table import Table

ModelKind = Literal["decoder", "encoder", "encoder-decoder"]
SEGMENTS = 2  # of an encoder's input: a text, and perhaps another one


class Model(Table):
    """The model: its shape, and which parts it is made of; the presets say who uses which.

    A decoder, unless it is ``bidirectional`` (an encoder) or has ``encoder_layers`` (both).
    """

    vocabulary_size: int = Field(
        ge=257, le=1 << 24, description="rows of W_e: one for each id, 3 for a decoder's task, and any unused"
    )
    context_length: int = Field(ge=2, le=1 << 16, description="k, tokens that a prediction may see")
    layers: int = Field(ge=1, le=1024, description="transformer blocks")
    bidirectional: bool = Field(
        default=False, description="an encoder (BERT): each position sees those after it, too"
    )
    encoder_layers: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="blocks of an encoder beside the decoder's (Transformer); 0: none",
    )
    heads: int = Field(ge=1, le=1024, description="attention heads of each block; divides width")
    kv_heads: int = Field(
        default=0, ge=0, le=1024, description="heads of keys and values; 0: as many as heads, 1: multi-query"
    )
    width: int = Field(ge=1, le=1 << 16, description="d_model")
    hidden_width: int = Field(ge=1, le=1 << 18, description="width of the feed-forward layer")
    positions: Literal["learned", "sinusoidal", "rotary"] = Field(
        default="learned", description="added to embeddings, or queries and keys turned (`rotary`)"
    )
    rotary_base: float = Field(default=10_000.0, ge=2, le=1e9, description="θ of the slowest angles")
    norm: Literal["layer", "rms"] = Field(default="layer", description="layer norm or RMS norm")
    norm_epsilon: float = Field(default=1e-5, gt=0, le=1e-2, description="added to the variance")
    placement: Literal["post", "pre", "parallel"] = Field(
        default="pre",
        description="norms after residual sums (GPT-1), before layers (GPT-2), or one for both (PaLM)",
    )
    feed_forward: Literal["gelu", "gelu_erf", "relu", "swiglu"] = Field(
        default="gelu",
        description="`gelu` in GPT's tanh form or BERT's exact one; `swiglu` has three matrices, not two",
    )
    biases: bool = Field(default=True, description="of linear layers and layer norms")
    tie_embeddings: bool = Field(default=True, description="W_e serves the output too")
    qk_norm: bool = Field(default=False, description="normalise each head's queries and keys")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="on embeddings, attention and residuals")
    init_std: float = Field(default=0.02, gt=0, le=1, description="standard deviation of initial weights")

    @field_validator("norm", mode="before")
    @classmethod
    def _renamed(cls, value: Any) -> Any:
        if value in ("pre", "post"):
            raise ValueError(f'"{value}" says where norms stand; write placement = "{value}"')
        return value

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, value: Any) -> Any:
        # Or equal models would hash differently.
        if isinstance(value, dict) and value.get("kv_heads") == value.get("heads"):
            return value | {"kv_heads": 0}
        return value

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(
                f"heads = {self.heads} does not divide width = {self.width}; "
                f"choose a width that is a multiple of {self.heads}"
            )
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"kv_heads = {self.kv_heads} does not divide heads = {self.heads}; choose a divisor, or 0"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(
                f'positions = "rotary" turns pairs of features, and width ÷ heads = {self.head_width} '
                "is odd; choose an even one"
            )
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f'positions = "sinusoidal" needs an even width, not {self.width}')
        if self.bidirectional and (self.encoder_layers or not self.tie_embeddings):
            raise ValueError(
                "bidirectional = true makes an encoder, whose head is tied to W_e and which has no other "
                "encoder beside it; choose tie_embeddings = true and encoder_layers = 0"
            )
        if self.encoder_layers and self.placement == "parallel":
            raise ValueError(
                'placement = "parallel" has no place for attention to an encoder; with encoder_layers choose '
                '"post" or "pre"'
            )
        if self.positions != "rotary" and self.rotary_base != Model.model_fields["rotary_base"].default:
            raise ValueError(f'rotary_base has no meaning with positions = "{self.positions}"; leave it out')
        return self

    @property
    def kind(self) -> ModelKind:
        """What the model is: its blocks see what is before them, all, or another text besides."""
        if self.bidirectional:
            return "encoder"
        return "encoder-decoder" if self.encoder_layers else "decoder"

    @property
    def blocks(self) -> str:
        """How many there are, for people: those of an encoder, if there is one beside the decoder, first."""
        return f"{self.encoder_layers} + {self.layers}" if self.encoder_layers else str(self.layers)

    @property
    def parts(self) -> str:
        """What it is made of, for people."""
        said: list[str] = [self.kind] if self.kind != "decoder" else []
        said += [f"{self.placement} {self.norm} norm", f"{self.positions} positions", self.feed_forward]
        if self.kv_heads:
            said.append(f"{self.kv_heads} key-value head{'s' if self.kv_heads > 1 else ''}")
        said += ["no biases"] if not self.biases else []
        said += ["untied embeddings"] if not self.tie_embeddings else []
        said += ["QK norm"] if self.qk_norm else []
        return ", ".join(said)

    @property
    def head_width(self) -> int:
        """Features of each head."""
        return self.width // self.heads

    @property
    def gated(self) -> bool:
        """Whether a third matrix of the feed-forward layer is a gate."""
        return self.feed_forward == "swiglu"

    @property
    def key_value_heads(self) -> int:
        """How many heads of keys and values there are."""
        return self.kv_heads or self.heads

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each of the model's weights by its name, in their order; matrices are [out, in].

        This is the one declaration of them: the model refuses to be built otherwise.
        """
        shapes: dict[str, tuple[int, ...]] = {"wte.weight": (self.vocabulary_size, self.width)}
        if self.positions == "learned":
            shapes["wpe.weight"] = (self.context_length, self.width)
        if self.bidirectional:
            shapes |= {"wse.weight": (SEGMENTS, self.width), **self._norm("ln_e", self.width)}
        if self.encoder_layers:
            shapes |= self._stack("encoder.h", self.encoder_layers, "encoder.ln_f", self._block_shapes())
        block = self._block_shapes(crossing=self.encoder_layers > 0)
        shapes |= self._stack("h", self.layers, "ln_f", block)
        if self.bidirectional:
            shapes |= self._encoder_head_shapes()
        if not self.tie_embeddings:
            shapes["lm_head.weight"] = (self.vocabulary_size, self.width)
        return shapes

    @property
    def numel(self) -> int:
        """The number of the model's weights."""
        return sum(map(math.prod, self.parameter_shapes().values()))

    def _stack(
        self, name: str, layers: int, norm: str, block: dict[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """So many blocks, and the norm after the last where what a block gives has gone through none."""
        shapes = {f"{name}.{layer}.{part}": shape for layer in range(layers) for part, shape in block.items()}
        return shapes if self.placement == "post" else shapes | self._norm(norm, self.width)

    def _encoder_head_shapes(self) -> dict[str, tuple[int, ...]]:
        """Pooler, the head for masked tokens, whose matrix is W_e, and the one for the next sentence."""
        width = self.width
        return {
            **self._linear("pooler", width, width),
            **self._linear("transform", width, width),
            **self._norm("ln_t", width),
            **({"output.bias": (self.vocabulary_size,)} if self.biases else {}),
            **self._linear("follows", width, 2),
        }

    def _attention_shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        width, keys_and_values = self.width, 2 * self.key_value_heads * self.head_width
        shapes = self._linear(f"{name}.c_attn", width, width + keys_and_values)
        shapes |= self._linear(f"{name}.c_proj", width, width)
        if self.qk_norm:
            shapes |= self._norm(f"{name}.q_norm", self.head_width)
            shapes |= self._norm(f"{name}.k_norm", self.head_width)
        return shapes

    def _block_shapes(self, *, crossing: bool = False) -> dict[str, tuple[int, ...]]:
        width, hidden = self.width, self.hidden_width
        shapes = self._norm("ln_1", width) | self._attention_shapes("attn")
        if crossing:
            shapes |= self._norm("ln_cross", width) | self._attention_shapes("cross")
        if self.placement != "parallel":
            shapes |= self._norm("ln_2", width)
        if self.gated:
            shapes |= self._linear("mlp.c_gate", width, hidden)
        return shapes | self._linear("mlp.c_fc", width, hidden) | self._linear("mlp.c_proj", hidden, width)

    def _linear(self, name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        bias = {f"{name}.bias": (outputs,)} if self.biases else {}
        return {f"{name}.weight": (outputs, inputs), **bias}

    def _norm(self, name: str, width: int) -> dict[str, tuple[int, ...]]:
        bias = {f"{name}.bias": (width,)} if self.biases and self.norm == "layer" else {}
        return {f"{name}.weight": (width,), **bias}
