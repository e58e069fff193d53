"""An engine of vLLM in this process: how it starts, samples, takes weights and ends.

vLLM batches by itself and computes in a process of its own. Log-probabilities are asked
for as those of softmax(logits / T), so top_k and the like of the model's own
generation_config.json are switched off.

Two traps are silent, and avoided here. Reloading a model with tied embeddings leaves
its old head in place unless the files hold the head too. A second adapter under the
same number is ignored.
"""

import itertools
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentcli.errors import DataError, MissingError, UsageError
from agentcli.policies.chat_tokens import Prompted
from agentcli.policies.load import ADAPTER, CONFIG, adapter_base, resolve_dtype
from agentcli.records.settings import PolicySettings

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM makes room for."""
HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"
TOKENS_PER_STEP = 8192
"""Of prompts that are read together on a CPU, where no prompt is longer."""
CPU_CACHE = 2**30
"""Bytes of keys and values on a CPU."""
GO_ON = "go on with --resume, which starts a new engine"

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",
    # stdout is for results.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    # A forked process would share locks that threads of this one hold.
    "VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn",
    # Binding threads to cores would put all engines of a machine on the same ones.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""What an engine reads from its environment, where the user has not set it."""


class VllmEngine:
    """A model, or a base and an adapter of it, in an engine that is up.

    `lora_rank` makes room for adapters up to this rank. Made and used in one event
    loop. Raises MissingError where the engine does not start.
    """

    def __init__(
        self, model: str, settings: PolicySettings, lora_rank: int, threads: int
    ) -> None:
        base = adapter_base(model)
        adapter = model if base else settings.adapter
        self._base = base or model
        self._numbers = itertools.count(1)
        self._adapter: Any = None
        self._rank = max(lora_rank, rank_of(adapter) if adapter else 0)
        with environment(threads):
            arguments = _arguments(self._base, settings, self._rank)
            self._engine = _start(arguments)
        self.dtype: str = arguments.dtype
        self.max_model_len: int = arguments.max_model_len
        self._sleep = settings.vllm.sleep if arguments.enable_sleep_mode else 0
        if adapter:
            self._adapter = self._numbered(adapter)

    async def generate(
        self, item: Prompted, ends: list[int]
    ) -> tuple[list[int], list[float]]:
        """The sampled ids, the end-of-turn token among them, and log-probabilities.

        Cancelling it aborts the request. Raises MissingError for a dead engine.
        """
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            temperature=item.temperature,
            seed=item.seed % 2**63,
            max_tokens=item.max_tokens,
            logprobs=0,
            stop_token_ids=ends,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = TokensPrompt(prompt_token_ids=item.prompt)
        number = str(next(self._numbers))
        with _deaths_in_one_line():
            outputs = self._engine.generate(
                prompt, parameters, number, lora_request=self._adapter
            )
            async for output in outputs:
                completion = output.outputs[0]
        tokens = list(completion.token_ids)
        logprobs = []
        for token, by_token in zip(tokens, completion.logprobs, strict=True):
            logprobs.append(round(by_token[token].logprob, 6))
        return tokens, logprobs

    async def load(self, checkpoint: str) -> None:
        """Takes the weights of a model of the same shape, or an adapter of its base.

        Raises UsageError for any other adapter, and MissingError for a dead engine.
        """
        base = adapter_base(checkpoint)
        if base and (base != self._base or rank_of(checkpoint) > self._rank):
            raise UsageError(
                f"policy.model {checkpoint}: the engine holds {self._base} with "
                f"adapters up to rank {self._rank}; start it with this adapter"
            )
        with _deaths_in_one_line():
            await self._wake("weights")
            self._adapter = self._numbered(checkpoint) if base else None
            if base is None:
                await self._reload(checkpoint)
            await self._wake("kv_cache")
            await self._engine.reset_prefix_cache()

    async def rest(self) -> None:
        """Frees the GPU for a training, as policy.vllm.sleep says."""
        if self._sleep and not self._engine.errored:
            # An adapter is nothing without its base, which level 2 throws away.
            level = 1 if self._adapter else self._sleep
            await self._engine.sleep(level)

    def close(self) -> None:
        """Ends the engine's processes."""
        self._engine.shutdown()
        del self._engine

    async def _wake(self, part: str) -> None:
        if self._sleep:
            await self._engine.wake_up(tags=[part])

    async def _reload(self, checkpoint: str) -> None:
        with folder_with_head(Path(checkpoint)) as folder:
            place = {"weights_path": str(folder)}
            await self._engine.collective_rpc("reload_weights", kwargs=place)

    def _numbered(self, adapter: str) -> Any:
        """The adapter under a number that none had before."""
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)
        return LoRARequest(f"adapter-{number}", number, adapter)


@contextmanager
def environment(threads: int) -> Iterator[None]:
    """Sets for the block what an engine reads, where the user has not."""
    from agentcli.environments.cache import cache_folder

    wanted = {
        **ENVIRONMENT,
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CACHE_ROOT": str(cache_folder(os.environ, "vllm")),
    }
    new = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


def rank_of(adapter: str) -> int:
    """The rank of a PEFT adapter. Raises DataError where it names none."""
    config = Path(adapter) / ADAPTER
    try:
        return int(json.loads(config.read_bytes())["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{config}: r: cannot be read; save the adapter again"
        ) from error


@contextmanager
def folder_with_head(checkpoint: Path) -> Iterator[Path]:
    """The checkpoint; for the block with a head of its own where embeddings are tied.

    vLLM's reload leaves a head alone that the files do not hold.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    files = sorted(checkpoint.glob("*.safetensors"))
    embedding = None
    for file in files:
        with safe_open(file, framework="pt") as weights:
            names = list(weights.keys())
            if HEAD in names:
                yield checkpoint
                return
            for name in names:
                if name.endswith(EMBEDDING):
                    embedding = weights.get_tensor(name)
    if embedding is None:
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="agentcli-vllm-") as temporary:
        folder = Path(temporary)
        for file in (*files, checkpoint / CONFIG):
            (folder / file.name).symlink_to(file.resolve())
        save_file({HEAD: embedding}, folder / "head.safetensors")
        yield folder


def _arguments(base: str, settings: PolicySettings, lora_rank: int) -> Any:
    """The engine arguments, with what follows from the settings filled in."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    on_cpu = current_platform.is_cpu()
    chosen = settings.vllm
    room = settings.max_prompt_tokens + settings.max_tokens
    length = chosen.max_model_len or min(room, longest_sequence(base))
    arguments = AsyncEngineArgs(
        model=base,
        skip_tokenizer_init=True,
        dtype=resolve_dtype(settings.dtype, "cpu" if on_cpu else "cuda"),
        generation_config="vllm",
        logprobs_mode="processed_logprobs",
        max_model_len=length,
        max_num_seqs=settings.batch_rows,
        tensor_parallel_size=chosen.tensor_parallel,
        gpu_memory_utilization=chosen.gpu_memory_utilization,
        enable_sleep_mode=bool(chosen.sleep) and not on_cpu,
        enforce_eager=on_cpu,
        disable_log_stats=True,
        use_tqdm_on_load=False,
    )
    if lora_rank:
        arguments.enable_lora = True
        arguments.max_lora_rank = min(rank for rank in LORA_RANKS if rank >= lora_rank)
    if on_cpu:
        # Main memory is not the engine's own: it takes what its cache needs.
        arguments.kv_cache_memory_bytes = CPU_CACHE
        # A seeded request whose prompt is read in parts ends the engine.
        arguments.enable_chunked_prefill = False
        arguments.max_num_batched_tokens = max(length, TOKENS_PER_STEP)
    return arguments


def longest_sequence(model: str) -> int:
    """The most tokens that a model is made for."""
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(model).max_position_embeddings)


def _start(arguments: Any) -> Any:
    from vllm.v1.engine.async_llm import AsyncLLM

    # This process reports a dead engine itself, in one line.
    logging.getLogger("vllm").setLevel(logging.CRITICAL)
    try:
        return AsyncLLM.from_engine_args(arguments)
    except Exception as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise MissingError(
            f"policy.kind vllm: the engine for {arguments.model} does not start "
            f"({reason}); mend what it reports above, or use --policy transformers"
        ) from error


@contextmanager
def _deaths_in_one_line() -> Iterator[None]:
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    try:
        yield
    except (EngineDeadError, EngineGenerateError) as error:
        raise MissingError(f"policy.kind vllm: its engine died; {GO_ON}") from error
