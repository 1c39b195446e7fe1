"""What starts a script on several GPUs: its own options are read by its own parser, and one rank is run."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from memlens.errors import UsageError
from memlens.model import Assumption
from memlens.patching import replaced
from memlens.scenarios.script.ranks import TORCHRUN


class Launch(NamedTuple):
    """What a launcher would start on each rank, and how many ranks there would be."""

    words: list[str]  # a script or `-m module`, with its arguments
    environment: dict[str, str]
    ranks: str = ""  # more than one, in the words of the line
    assumptions: tuple[Assumption, ...] = ()


def torchrun(words: list[str]) -> Launch:
    """`torchrun [options] train.py args`, which is `python -m torch.distributed.run`."""
    from torch.distributed.run import get_args_parser

    options = parsed(get_args_parser(), words, "torchrun")
    return _torch_rank(options, options.training_script_args)


def torch_launch(words: list[str]) -> Launch:
    """`python -m torch.distributed.launch`: the older one, which says the local rank as an argument."""
    import torch.distributed.launch as old

    with _errors_of("torch.distributed.launch"):
        options = old.parse_args(words)
    rank = [] if options.use_env else ["--local-rank=0"]
    return _torch_rank(options, [*rank, *options.training_script_args])


def _torch_rank(options: Any, arguments: list[str]) -> Launch:
    start = ["-m"] if options.module else []
    nodes = options.nnodes.rpartition(":")[2]
    ranks = " x ".join(n for n in (nodes, options.nproc_per_node) if n != "1")
    return Launch([*start, options.training_script, *arguments], dict(TORCHRUN), ranks)


def accelerate(words: list[str]) -> Launch:
    """`accelerate launch [options] train.py args`; its configuration file counts, as it does there."""
    if words[:1] != ["launch"]:
        raise UsageError(
            f"`accelerate {' '.join(words[:1])}` runs no script", hint="accelerate launch train.py --epochs 3"
        )
    return accelerate_launch(words[1:])


def accelerate_launch(words: list[str]) -> Launch:
    """The same without the word `launch`, as `python -m accelerate.commands.launch` has it."""
    try:
        from accelerate.commands import launch
        from accelerate.utils.launch import prepare_simple_launcher_cmd_env
    except ModuleNotFoundError as problem:
        raise UsageError("accelerate is not installed here", hint="pip install accelerate") from problem
    options = parsed(launch.launch_command_parser(), words, "accelerate launch")
    logging.getLogger(launch.__name__).setLevel(logging.ERROR)  # it lists what was not said
    try:
        options, _, _ = launch._validate_launch_command(options)
    except ValueError as problem:
        raise UsageError(f"accelerate launch: {problem}") from problem
    shares = [name for name in ("use_fsdp", "use_deepspeed", "use_megatron_lm") if getattr(options, name)]
    stated = [
        Assumption(
            f"accelerate's --{name} is left out",
            "one process holds all that it would share among ranks, so a rank of several needs less",
        )
        for name in shares
    ]
    ranks = str(options.num_processes) if (options.num_processes or 1) > 1 else ""
    options.num_processes = options.num_machines = 1
    options.gpu_ids = options.mpirun_hostfile = None
    command, environment = prepare_simple_launcher_cmd_env(options)
    new = {name: value for name, value in environment.items() if os.environ.get(name) != value}
    words = command[not options.no_python :]
    return Launch(words, new | (TORCHRUN if ranks and not shares else {}), ranks, tuple(stated))


def deepspeed(words: list[str]) -> Launch:
    """`deepspeed [options] train.py args`: its launcher says the local rank as an argument."""
    parser = argparse.ArgumentParser("deepspeed", allow_abbrev=False)
    for name in _DEEPSPEED_VALUES:
        parser.add_argument(*name.split("/"))
    for name in _DEEPSPEED_FLAGS:
        parser.add_argument(name, action="store_true")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parsed(parser, words, "deepspeed")
    start = ["-m"] if options.module else []
    rank = [] if options.no_local_rank else ["--local_rank=0"]
    ranks = " x ".join(n for n in (options.num_nodes, options.num_gpus) if n not in (None, "1"))
    return Launch([*start, options.script, *rank, *options.arguments], dict(TORCHRUN), ranks)


# its options as deepspeed/launcher/runner.py declares them (0.16)
_DEEPSPEED_VALUES = (
    "-H/--hostfile", "-i/--include", "-e/--exclude", "--num_nodes", "--min_elastic_nodes",
    "--max_elastic_nodes", "--num_gpus/--num_accelerators", "--master_port", "--master_addr", "--node_rank",
    "--launcher", "--launcher_args", "--autotuning", "--venv_script", "--ssh_port", "--save_pid",
    "--enable_each_rank_log", "--bind_core_list",
)  # fmt: skip
_DEEPSPEED_FLAGS = (
    "--module", "--no_python", "--no_local_rank", "--no_ssh", "--no_ssh_check", "--force_multi",
    "--elastic_training", "--bind_cores_to_rank",
)  # fmt: skip


def parsed(parser: argparse.ArgumentParser, words: list[str], name: str) -> Any:
    """What a launcher's own parser reads; its complaints are ours."""
    with _errors_of(name):
        return parser.parse_args(words)


def _errors_of(name: str) -> replaced:
    """argparse prints and exits where it refuses; this makes one error of it."""

    def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
        raise UsageError(f"{name} does not take this: {message}", hint=f"{name} --help lists its options")

    return replaced({"argparse.ArgumentParser.error": refuse})


# name, as names.py has it -> what reads its options
TABLE: dict[str, Callable[[list[str]], Launch]] = {
    "torchrun": torchrun,
    "torch.distributed.launch": torch_launch,
    "accelerate": accelerate,
    "accelerate.commands.launch": accelerate_launch,
    "deepspeed": deepspeed,
}
