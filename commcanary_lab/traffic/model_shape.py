"""The shape of a language model and of a training step: what its traffic can be predicted from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields

from commcanary_lab.errors import InputError, Problem, UsageError
from commcanary_lab.trace.ops import DTYPE_BYTES, canonical_dtype

__all__ = ["ModelShape", "parse_shape"]


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer and one training step of it.

    Parameters
    ----------
    hidden_size : int
        h.
    layers : int
        L, all of them.
    sequence_length : int
        s, tokens of a sequence before context parallelism divides it.
    micro_batch_size : int
        b, sequences of a micro batch per data-parallel replica.
    micro_batches : int
        m, micro batches of a step per replica.
    dtype : str
        Of activations.
    gradient_dtype : str
        Of the gradients that data parallelism reduces.
    vocabulary : int
        V; 0 leaves the embedding out.
    parameters : int
        Parameters of the whole model without experts; 0: ``12 L h^2 + V h``.
    experts : int
        E per mixture-of-experts layer; 0: dense.
    top_k : int
        Experts per token.
    expert_layers : int
        Layers with experts; 0 with experts: all.
    expert_hidden_size : int
        Inner size of an expert; 0: 4 h.
    sequence_parallel : bool
        Reduce-scatter and all-gather instead of the all-reduces of tensor parallelism: the same bytes.
    sharded_gradients : bool
        Reduce-scatter of gradients and all-gather of parameters (a distributed optimiser) instead of an all-reduce of gradients.
    kv_share : float
        Size of keys and values relative to h (1: as many heads as queries), for context parallelism.
    steps : int
        Training steps.

    Raises
    ------
    InputError
        If a figure is out of range; every problem is listed.

    Examples
    --------
    >>> ModelShape(hidden_size=4096, layers=6, sequence_length=8192).activation_bytes
    67108864
    """

    hidden_size: int
    layers: int
    sequence_length: int
    micro_batch_size: int = 1
    micro_batches: int = 1
    dtype: str = "bfloat16"
    gradient_dtype: str = "float32"
    vocabulary: int = 0
    parameters: int = 0
    experts: int = 0
    top_k: int = 1
    expert_layers: int = 0
    expert_hidden_size: int = 0
    sequence_parallel: bool = False
    sharded_gradients: bool = False
    kv_share: float = 1.0
    steps: int = 1

    def __post_init__(self) -> None:
        out = []
        for name in ("hidden_size", "layers", "sequence_length", "micro_batch_size", "micro_batches", "top_k", "steps"):
            if getattr(self, name) < 1:
                out.append(Problem(f"{getattr(self, name)} is not positive", field=name, remedy="give a whole number >= 1"))
        for name in ("vocabulary", "parameters", "experts", "expert_layers", "expert_hidden_size"):
            if getattr(self, name) < 0:
                out.append(Problem(f"{getattr(self, name)} is negative", field=name, remedy="give 0 or more"))
        for name in ("dtype", "gradient_dtype"):
            if canonical_dtype(getattr(self, name)) is None:
                known = ", ".join(sorted(DTYPE_BYTES))
                out.append(Problem(f"{getattr(self, name)!r} is no known dtype", field=name, remedy=f"give one of {known}"))
        if self.experts and self.top_k > self.experts:
            what = f"{self.top_k} experts per token of {self.experts}"
            out.append(Problem(what, field="top_k", remedy="give at most the number of experts"))
        if self.expert_layers > self.layers:
            what = f"{self.expert_layers} layers with experts of {self.layers}"
            out.append(Problem(what, field="expert_layers", remedy="give at most layers"))
        if not 0 < self.kv_share <= 1:
            out.append(Problem(f"{self.kv_share} is not in (0, 1]", field="kv_share", remedy="give heads of keys over heads of queries"))
        if out:
            raise InputError(out)

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation."""
        return DTYPE_BYTES[canonical_dtype(self.dtype) or ""]

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient."""
        return DTYPE_BYTES[canonical_dtype(self.gradient_dtype) or ""]

    @property
    def activation_bytes(self) -> int:
        """Bytes of the activations of one micro batch: b s h times the width."""
        return self.micro_batch_size * self.sequence_length * self.hidden_size * self.element_bytes

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return (self.expert_layers or self.layers) if self.experts else 0

    @property
    def dense_parameters(self) -> int:
        """Parameters outside of experts: 4 h^2 for attention, 8 h^2 for the MLP of a layer without experts, V h for the embedding."""
        h = self.hidden_size
        return self.parameters or 4 * self.layers * h * h + 8 * (self.layers - self.moe_layers) * h * h + self.vocabulary * h

    @property
    def expert_parameters(self) -> int:
        """Parameters of all experts: two matrices of h by the inner size, each."""
        return 2 * self.moe_layers * self.experts * self.hidden_size * (self.expert_hidden_size or 4 * self.hidden_size)


def parse_shape(text: str) -> ModelShape:
    """Parse ``hidden_size=4096,layers=32,...``.

    Raises
    ------
    UsageError
        On an unknown name, a value that is no number, or a missing one.
    InputError
        As `ModelShape`.

    Examples
    --------
    >>> parse_shape("hidden_size=4096,layers=6,sequence_length=8192,sequence_parallel=true").sequence_parallel
    True
    """
    kinds = {f.name: str(f.type) for f in fields(ModelShape)}
    given: dict[str, object] = {}
    for pair in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = (x.strip() for x in pair.partition("="))
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, 1)
            raise UsageError(f"a model shape has no {name!r}", remedy=f"did you mean {near[0]}?" if near else f"it has: {', '.join(kinds)}")
        given[name] = _value(name, value, kinds[name])
    missing = [n for n in ("hidden_size", "layers", "sequence_length") if n not in given]
    if missing:
        raise UsageError(f"the model shape lacks {', '.join(missing)}", remedy="write hidden_size=...,layers=...,sequence_length=...")
    return ModelShape(**given)  # type: ignore[arg-type]


def _value(name: str, value: str, kind: str) -> object:
    try:
        if kind == "bool":
            return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
        return int(value) if kind == "int" else float(value) if kind == "float" else value
    except (KeyError, ValueError):
        raise UsageError(f"{name} = {value!r} is no {kind}", remedy=f"give {name} as a {kind}") from None
