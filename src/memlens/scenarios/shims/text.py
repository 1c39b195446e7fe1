"""`--synthetic` for text: datasets and tokenizers of the Hugging Face hub that are not on this machine."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from memlens.scenarios.shims.registry import Shims, shim

ROWS = 64
WORDS = 2000  # in a text: longer than what models are fed, so that each is cut to its length
MODEL_LENGTH = 512  # what BERT's family takes
SPECIAL = ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>")
_TEXT = "text sentence sentence1 sentence2 question context instruction input output prompt response review"
_LABELS = "label labels target"


@shim("datasets")
def datasets(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """`load_dataset`: the columns that most datasets of text have, where the real one cannot be had."""
    if not shims.synthetic:
        return {}
    load = module.load_dataset

    def load_or_make_up(
        path: str, *args: Any, split: Any = None, streaming: bool = False, **rest: Any
    ) -> Any:
        try:
            return load(path, *args, split=split, streaming=streaming, **rest)
        except (OSError, ValueError):
            columns: dict[str, Any] = {name: [" ".join(["word"] * WORDS)] * ROWS for name in _TEXT.split()}
            columns |= {name: [number % 2 for number in range(ROWS)] for name in _LABELS.split()}
            shims.make_up(f"{path} is made up: {ROWS} rows of {WORDS:,} words")
            made = module.Dataset.from_dict(columns)
            made = made.to_iterable_dataset() if streaming else made
            if split is not None:
                return made
            kinds = module.IterableDatasetDict if streaming else module.DatasetDict
            return kinds(dict.fromkeys(("train", "validation", "test"), made))

    return {"load_dataset": load_or_make_up, "load.load_dataset": load_or_make_up}


@shim("transformers.tokenization_utils_base")
def tokenizers(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """`from_pretrained` of tokenizers: one that makes a token of every word."""
    return loaded_or_made_up(shims, module.PreTrainedTokenizerBase)


@shim("transformers.models.auto.tokenization_auto")
def automatic(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """`AutoTokenizer`, which looks for a config before it knows the class."""
    return loaded_or_made_up(shims, module.AutoTokenizer)


def loaded_or_made_up(shims: Shims, kind: Any) -> dict[str, Any]:
    """The `from_pretrained` of a class of tokenizers, with a way out where nothing can be loaded."""
    if not shims.synthetic:
        return {}
    load = kind.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, *args: Any, **options: Any) -> Any:
        try:
            return load(cls, name, *args, **options)
        except (OSError, ValueError):
            return made_up(shims, name)

    return {f"{kind.__name__}.from_pretrained": classmethod(from_pretrained)}


def made_up(shims: Shims, name: Any) -> Any:
    """A tokenizer with a handful of words; every other one is unknown to it, which is a token too."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    why = "it is not on this machine; how many tokens a text has is not known"
    shims.make_up(f"the tokenizer of {name} is made up: a token for every word", why)
    words = {word: number for number, word in enumerate((*SPECIAL, "word"))}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", bos_token="<s>", eos_token="</s>", model_max_length=MODEL_LENGTH,
        chat_template="{% for message in messages %}{{ message['content'] }} {% endfor %}",
    )  # fmt: skip
