"""A vLLM engine in this process: how it starts, samples, loads weights and ends.

vLLM does its own batching and computes in a separate process. Log-probabilities are
requested as those of softmax(logits / T), so top_k and similar settings of the model's
generation_config.json are switched off.

Two silent traps are avoided here. Reloading a model with tied embeddings keeps its old
head unless the files also contain the head. A second adapter with the same number is
ignored.
"""

import itertools
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentcli.errors import DataError, MissingError, PolicyError, UsageError
from agentcli.policies.chat_tokens import Prompted
from agentcli.policies.load import (
    ADAPTER,
    CONFIG,
    adapter_base,
    first_line,
    resolve_dtype,
)
from agentcli.policies.vllm_plugin import STARTED_HERE
from agentcli.records.scratch import ScratchFolder
from agentcli.records.settings import PolicySettings

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The LoRA ranks that vLLM can reserve space for."""
HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"
TOKENS_PER_STEP = 8192
"""Prompt tokens that are processed together on a CPU, if no prompt is longer."""
CPU_CACHE = 2**30
"""Bytes for keys and values on a CPU."""
GO_ON = "go on with --resume, which starts a new engine"

ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",
    STARTED_HERE: "1",
    # stdout is for results.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    # A forked process would inherit locks held by threads of this one.
    "VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn",
    # Binding threads to cores would put all engines of a machine on the same cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""Environment variables for an engine, unless the user has set them."""


class VllmEngine:
    """A model, or a base model with an adapter, in a running engine.

    `lora_rank` reserves space for adapters up to this rank. Create and use it in one
    event loop. Raises MissingError if the engine does not start.
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
            # This process reports a dead engine itself, in one line.
            logging.getLogger("vllm").setLevel(logging.CRITICAL)
            options = engine_options(self._base, settings, self._rank)
            self._sleep = settings.vllm.sleep if _can_sleep() else 0
            self._engine = _start(options, bool(self._sleep))
        self.dtype: str = options["dtype"]
        self.max_model_len: int = options["max_model_len"]
        self.can_be_longer = self.max_model_len < longest_sequence(self._base)
        """Whether the model supports more than policy.vllm.max_model_len."""
        if adapter:
            self._adapter = self._numbered(adapter)

    async def generate(
        self, item: Prompted, ends: list[int]
    ) -> tuple[list[int], list[float]]:
        """The sampled ids, end-of-turn token included, and their log-probabilities.

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
        with _faults_in_one_line():
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
        """Loads the weights of a model of the same shape, or an adapter of its base.

        Raises UsageError for any other adapter, and MissingError for a dead engine.
        """
        base = adapter_base(checkpoint)
        if base and not self._has_room_for(base, checkpoint):
            raise UsageError(
                f"policy.model {checkpoint}: the engine holds {self._base} with "
                f"adapters up to rank {self._rank}; start it with this adapter"
            )
        with _faults_in_one_line():
            await self._wake("weights")
            self._adapter = self._numbered(checkpoint) if base else None
            if base is None:
                await self._reload(checkpoint)
            await self._wake("kv_cache")
            await self._engine.reset_prefix_cache()

    async def rest(self) -> None:
        """Frees the GPU for a training, as set by policy.vllm.sleep."""
        if self._sleep and not self._engine.errored:
            # An adapter is useless without its base, which level 2 discards.
            level = 1 if self._adapter else self._sleep
            await self._engine.sleep(level)

    def close(self) -> None:
        """Ends the engine's processes."""
        self._engine.shutdown()
        del self._engine

    def _has_room_for(self, base: str, adapter: str) -> bool:
        # An adapter may refer to its base by another path.
        same = Path(base).resolve() == Path(self._base).resolve()
        return same and rank_of(adapter) <= self._rank

    async def _wake(self, part: str) -> None:
        if self._sleep:
            await self._engine.wake_up(tags=[part])

    async def _reload(self, checkpoint: str) -> None:
        # The engine's processes may have another working directory.
        with folder_with_head(Path(checkpoint).absolute()) as folder:
            place = {"weights_path": str(folder)}
            await self._engine.collective_rpc("reload_weights", kwargs=place)

    def _numbered(self, adapter: str) -> Any:
        """The adapter under a number that was not used before."""
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)
        return LoRARequest(f"adapter-{number}", number, str(Path(adapter).absolute()))


@contextmanager
def environment(threads: int) -> Iterator[None]:
    """Sets an engine's environment variables for the block, unless the user has."""
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
    """The rank of a PEFT adapter. Raises DataError if none is given."""
    config = Path(adapter) / ADAPTER
    try:
        return int(json.loads(config.read_bytes())["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{config}: r: cannot be read; save the adapter again"
        ) from error


@contextmanager
def folder_with_head(checkpoint: Path) -> Iterator[Path]:
    """The checkpoint; with tied embeddings, a temporary copy with its own head.

    vLLM's reload does not change a head that is not in the files.
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
    with ScratchFolder() as temporary:
        folder = Path(temporary)
        for file in (*files, checkpoint / CONFIG):
            (folder / file.name).symlink_to(file.resolve())
        save_file({HEAD: embedding}, folder / "head.safetensors")
        yield folder


def engine_options(
    base: str, settings: PolicySettings, lora_rank: int
) -> dict[str, Any]:
    """The engine's arguments by name, including those derived from the settings."""
    from vllm.platforms import current_platform

    on_cpu = current_platform.is_cpu()
    chosen = settings.vllm
    room = settings.max_prompt_tokens + settings.max_tokens
    length = chosen.max_model_len or min(room, longest_sequence(base))
    options: dict[str, Any] = {
        "model": base,
        "skip_tokenizer_init": True,
        "dtype": resolve_dtype(settings.dtype, "cpu" if on_cpu else "cuda"),
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "max_model_len": length,
        "max_num_seqs": settings.batch_rows,
        "tensor_parallel_size": chosen.tensor_parallel,
        "gpu_memory_utilization": chosen.gpu_memory_utilization,
        "use_tqdm_on_load": False,
    }
    if lora_rank:
        room_for_rank = min(rank for rank in LORA_RANKS if rank >= lora_rank)
        options |= {"enable_lora": True, "max_lora_rank": room_for_rank}
    if on_cpu:
        refuse_odd_heads(base)
        options |= {
            "enforce_eager": True,
            # The engine has to share main memory.
            "kv_cache_memory_bytes": CPU_CACHE,
            # With chunked prefill, a seeded request would end the engine.
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(length, TOKENS_PER_STEP),
        }
    return options


def longest_sequence(model: str) -> int:
    """The most tokens that a model supports."""
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(model).max_position_embeddings)


def refuse_odd_heads(model: str) -> None:
    """Raises UsageError for head sizes that vLLM cannot compute on a CPU.

    Otherwise the engine dies at its first request.
    """
    from transformers import AutoConfig
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    config = AutoConfig.from_pretrained(model)
    even = config.hidden_size // config.num_attention_heads
    width = getattr(config, "head_dim", None) or even
    widths = CPUAttentionBackend.get_supported_head_sizes()
    if width not in widths:
        raise UsageError(
            f"policy.model {model}: its attention heads are {width} wide, and vLLM "
            f"computes only {', '.join(map(str, widths))} on a CPU; use --policy "
            "transformers"
        )


def _can_sleep() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_sleep_mode_available())


def _start(options: dict[str, Any], sleeps: bool) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        arguments = AsyncEngineArgs(
            **options, enable_sleep_mode=sleeps, disable_log_stats=True
        )
        # Importing it has set the level anew.
        logging.getLogger("vllm").setLevel(logging.CRITICAL)
        return AsyncLLM.from_engine_args(arguments)
    except Exception as error:
        raise MissingError(
            f"policy.kind vllm: the engine for {options['model']} does not start "
            f"({first_line(error)}); mend what it reports above, or use --policy transformers"
        ) from error


@contextmanager
def _faults_in_one_line() -> Iterator[None]:
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    try:
        yield
    except (EngineDeadError, EngineGenerateError) as error:
        raise MissingError(f"policy.kind vllm: its engine failed; {GO_ON}") from error
    except Exception as error:
        raise PolicyError(f"policy.kind vllm: {first_line(error)}; {GO_ON}") from error
