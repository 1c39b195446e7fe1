"""Which blocks to checkpoint: the cheapest set that fits, proposed from one trace, proved by simulating.

The blocks run one inside the other: what the first one keeps lives longest, from the start of forward to the
end of backward. At the end of forward everything is there, so what a set saves is the sum of what its blocks
keep. Of equal blocks the first are taken: when backward recomputes one of them, those after it are gone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from torch import nn
from torch.utils.checkpoint import checkpoint

from memlens.advice.bench import Bench
from memlens.advice.change import Change, with_model_edit
from memlens.advice.facts import Block, Facts

LEVELS = 256  # bytes are counted in parts of what is needed, rounded so that a set never saves less
TRIES = 10


def cheapest(blocks: Sequence[Block], need_bytes: int) -> tuple[int, ...]:
    """Indices of blocks that together keep at least `need_bytes`, with the least work; of equals the first.

    All blocks where even they do not.

    >>> blocks = [Block("a", 30, 10), Block("b", 50, 10), Block("c", 50, 10)]
    >>> cheapest(blocks, 40), cheapest(blocks, 100), cheapest(blocks, 80)
    ((1,), (1, 2), (0, 1))
    """
    if need_bytes <= 0:
        return ()
    unit = max(need_bytes // LEVELS, 1)
    wanted = -(-need_bytes // unit)
    # best[saved] = (work, sum of indices, indices); `wanted` stands for that much or more
    best: list[tuple[int, int, tuple[int, ...]] | None] = [(0, 0, ())] + [None] * wanted
    for index, block in enumerate(blocks):
        for saved in range(wanted, -1, -1):
            state = best[saved]
            if state is None:
                continue
            reached = min(saved + block.kept_bytes // unit, wanted)
            new = (state[0] + max(block.flops, 1), state[1] + index, (*state[2], index))
            old = best[reached]
            if reached > saved and (old is None or new[:2] < old[:2]):
                best[reached] = new
    found = best[wanted]
    return found[2] if found is not None else tuple(range(len(blocks)))


def checkpoint_these(model: nn.Module, paths: Sequence[str]) -> None:
    """Recompute these modules in backward. transformers' own layers are told; others are wrapped."""
    chosen = set(paths)
    if any(_is_transformers(module) for module in model.modules()):
        model.gradient_checkpointing_enable()
        for path, module in model.named_modules():
            if _is_transformers(module):
                module.gradient_checkpointing = path in chosen
        return
    for path in paths:
        block = model.get_submodule(path)
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def _is_transformers(module: nn.Module) -> bool:
    return any(cls.__name__ == "GradientCheckpointingLayer" for cls in type(module).__mro__)


def plan_change(facts: Facts, chosen: tuple[int, ...]) -> Change:
    """Checkpointing of the blocks with these indices."""
    paths = [facts.blocks[index].path for index in chosen]
    share = sum(facts.blocks[index].flops for index in chosen) / facts.flops if facts.flops else 0.0
    extra = "; BatchNorm's running statistics move twice a step" if facts.blocks_have_batch_norm else ""
    return Change(
        "checkpointing-plan",
        f"gradient checkpointing of {len(paths)} of the {len(facts.blocks)} blocks: {spans(paths)}",
        _code(paths, facts.checkpointing),
        f"recomputes {share:.0%} of forward{extra}",
        with_model_edit(lambda model: checkpoint_these(model, paths)),
        changes_result=facts.blocks_have_batch_norm,
        group="activations",
        detail=" " + ",".join(map(str, chosen)),
    )


def _code(paths: Sequence[str], kind: str) -> str:
    names = ", ".join(f'"{path}"' for path in paths)
    if kind == "transformers":
        return (
            f"model.gradient_checkpointing_enable()\nchosen = {{{names}}}\n"
            "for path, module in model.named_modules():\n"
            "    if isinstance(module, GradientCheckpointingLayer):  # of transformers.modeling_layers\n"
            "        module.gradient_checkpointing = path in chosen"
        )
    return (
        f"for path in [{names}]:\n    block = model.get_submodule(path)\n"
        "    block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)"
    )


def spans(paths: Sequence[str]) -> str:
    """Neighbours in one word.

    >>> spans(["h.0", "h.1", "h.2", "h.7"])
    'h.0 to h.2, h.7'
    """
    groups: list[list[str]] = []
    for path in paths:
        stem, _, number = path.rpartition(".")
        last_stem, _, last = groups[-1][-1].rpartition(".") if groups else ("", "", "")
        follows = number.isdigit() and last.isdigit() and int(number) == int(last) + 1
        if groups and stem == last_stem and follows:
            groups[-1].append(path)
        else:
            groups.append([path])
    return ", ".join(group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups)


def find_plan(facts: Facts, bench: Bench, *others: Change) -> Change | None:
    """The cheapest set of blocks that was simulated and fits; None where even all do not.

    What is needed is searched between what the base run is short of and what all blocks keep: each set that
    does not fit raises the lower end, each that does lowers the upper one.
    """
    blocks, memory = facts.blocks, facts.base.device.memory_bytes
    if memory is None or len(blocks) < 2 or facts.scenario.grad_checkpointing or not facts.training:
        return None
    least = min((block.kept_bytes for block in blocks if block.kept_bytes), default=0)
    start = bench.outcome(*others)
    if not least or start is None:
        return None
    low, high = 0, sum(block.kept_bytes for block in blocks)
    need = start.process_bytes - memory
    best: tuple[int, ...] | None = None
    for _ in range(TRIES):
        chosen = cheapest(blocks, min(max(need, low + 1), high))
        if chosen == best:
            break
        outcome = bench.outcome(*others, plan_change(facts, chosen))
        if outcome is None:
            return None
        saved = sum(blocks[index].kept_bytes for index in chosen)
        if outcome.fits:
            best, high = chosen, min(high, saved)
        elif len(chosen) == len(blocks):
            return None
        else:
            low = max(low, saved)
        if high - low < least:
            break
        short = outcome.process_bytes - memory
        need = max(saved + short, low + 1) if best is None else (low + high) // 2
    if best is None or (len(best) == len(blocks) and _in_one_list(blocks)):
        return None  # all of them is what plain checkpointing does
    return plan_change(facts, best)


def _in_one_list(blocks: Sequence[Block]) -> bool:
    return len({block.path.rpartition(".")[0] for block in blocks}) == 1
