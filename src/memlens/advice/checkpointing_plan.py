"""Which blocks to checkpoint: the cheapest set that fits, proposed from one trace, proved by simulating.

The blocks run one inside the other: what the first one keeps lives longest, from the start of forward to the
end of backward. At the end of forward everything is there, so what a set saves is the sum of what its blocks
keep. Of equal blocks the first are taken: when backward recomputes one of them, those after it are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memlens.advice.blocks import checkpoint_these, checkpointing_code
from memlens.advice.change import Change, with_model_edit
from memlens.advice.evaluator import Evaluator
from memlens.advice.facts import Block, TargetFacts

MOST_STATES = 1000
TRIES = 10
State = tuple[int, int, tuple[int, ...]]  # work, sum of the indices, indices


def cheapest(blocks: Sequence[Block], need_bytes: int) -> tuple[int, ...]:
    """Indices of blocks that together keep at least `need_bytes`, with the least work; of equals the first.

    All blocks where even they do not.

    >>> blocks = [Block("a", 30, 10), Block("b", 50, 10), Block("c", 50, 10)]
    >>> cheapest(blocks, 40), cheapest(blocks, 100), cheapest(blocks, 80)
    ((1,), (1, 2), (0, 1))
    """
    if need_bytes <= 0:
        return ()
    states: dict[int, State] = {0: (0, 0, ())}  # bytes saved, at most what is needed -> the cheapest way
    for index, block in enumerate(blocks):
        for saved, (work, order, chosen) in list(states.items()):
            reached = min(saved + block.kept_bytes, need_bytes)
            new = (work + max(block.flops, 1), order + index, (*chosen, index))
            if reached not in states or new < states[reached]:
                states[reached] = new
        states = _worth_keeping(states, need_bytes)
    return states[need_bytes][2] if need_bytes in states else tuple(range(len(blocks)))


def _worth_keeping(states: dict[int, State], need_bytes: int) -> dict[int, State]:
    """Without those that save no more than a cheaper one; of very many, the cheapest in each small range."""
    kept: dict[int, State] = {}
    for saved, state in sorted(states.items(), reverse=True):
        if not kept or state < next(reversed(kept.values())):
            kept[saved] = state
    if len(kept) <= MOST_STATES:
        return kept
    ranges = {saved * MOST_STATES // need_bytes: saved for saved in kept}  # the last of a range is cheapest
    return {saved: kept[saved] for saved in ranges.values()}


def plan_change(facts: TargetFacts, chosen: tuple[int, ...]) -> Change:
    """Checkpointing of the blocks with these indices."""
    paths = [facts.blocks[index].path for index in chosen]
    share = sum(facts.blocks[index].flops for index in chosen) / facts.flops if facts.flops else 0.0
    extra = "; BatchNorm's running statistics move twice a step" if facts.blocks_have_batch_norm else ""
    return Change(
        "checkpointing-plan",
        f"gradient checkpointing of {len(paths)} of the {len(facts.blocks)} blocks: {spans(paths)}",
        checkpointing_code(paths, facts.checkpointing),
        f"recomputes {share:.0%} of forward{extra}",
        with_model_edit(lambda model: checkpoint_these(model, paths)),
        {"checkpointing": paths},
        changes_result=facts.blocks_have_batch_norm,
        group="activations",
        detail=" " + ",".join(map(str, chosen)),
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


def find_plan(facts: TargetFacts, evaluator: Evaluator[Any], *others: Change) -> Change | None:
    """The cheapest set of blocks that was simulated and fits; None where even all do not.

    What is needed is searched between what the base run is short of and what all blocks keep: each set that
    does not fit raises the lower end, each that does lowers the upper one.
    """
    blocks, memory = facts.blocks, facts.base.device.memory_bytes
    if memory is None or len(blocks) < 2 or facts.scenario.grad_checkpointing or not facts.is_training:
        return None
    least = min((block.kept_bytes for block in blocks if block.kept_bytes), default=0)
    start = evaluator.outcome(*others)
    if not least or start is None:
        return None
    low, high = 0, sum(block.kept_bytes for block in blocks)
    need = start.process_bytes - memory
    best: tuple[int, ...] | None = None
    for _ in range(TRIES):
        chosen = cheapest(blocks, min(max(need, low + 1), high))
        if chosen == best:
            break
        outcome = evaluator.outcome(*others, plan_change(facts, chosen))
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
    if best is None or (len(best) == len(blocks) and facts.checkpointing != "timm"):
        return None  # all of them is what plain checkpointing does, unless the model does it its own way
    return min(
        (plan_change(facts, chosen) for chosen in arrangements(blocks, best)),
        key=lambda change: _needs(evaluator, *others, change),
    )


def _needs(evaluator: Evaluator[Any], *changes: Change) -> tuple[bool, int]:
    outcome = evaluator.outcome(*changes)
    return (True, 0) if outcome is None else (not outcome.fits, outcome.process_bytes)


def arrangements(blocks: Sequence[Block], chosen: tuple[int, ...]) -> list[tuple[int, ...]]:
    """`chosen`, and where it is no more work as many blocks evenly spread.

    What is allocated is least with the first; what the allocator reserves for it may be less with the other.

    >>> arrangements([Block(f"h.{i}", 100, 7) for i in range(6)], (0, 1, 2))
    [(0, 1, 2), (1, 3, 5)]
    """
    count = len(blocks)
    spread = tuple((i + 1) * count // len(chosen) - 1 for i in range(len(chosen)))

    def work(indices: tuple[int, ...]) -> int:
        return sum(blocks[i].flops for i in indices)

    return [chosen, spread] if spread != chosen and work(spread) <= work(chosen) else [chosen]
