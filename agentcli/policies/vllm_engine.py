"""The vllm policy, and its engine: how it starts, samples, loads weights and ends.

vLLM does its own batching and computes in a separate process. Log-probabilities are
requested as those of softmax(logits / T), so top_k and similar settings of the model's
generation_config.json are switched off.

Two silent traps are avoided here. Reloading a model with tied embeddings on a CPU keeps
its old head unless the files also contain the head. A second adapter with the same
number is ignored. After every reload, what the engine holds is compared with the files.
"""

import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any
from zlib import crc32

from agentcli.errors import (
    MissingError,
    PolicyError,
    UsageError,
)
from agentcli.policies.chat_tokens import (
    LOWER,
    ChatTokens,
    Prompted,
    refuse_crowded,
)
from agentcli.policies.load import (
    CONFIG,
    adapter_base,
    first_line,
    rank_of,
    resolve_dtype,
)
from agentcli.policies.protocol import Reply, Request, Waiting
from agentcli.policies.vllm_plugin import STARTED_HERE, coordinate
from agentcli.records.processes import environ_with
from agentcli.records.scratch import ScratchFolder
from agentcli.records.settings import Settings
from agentcli.registry import closest

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The LoRA ranks that vLLM can reserve space for."""
HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"
TOKENS_PER_STEP = 8192
"""Prompt tokens that are processed together, if no prompt is longer."""
MOST_RUNNING = 1024
"""Requests that a replica answers together, if policy.batch_rows is no larger."""
WORKERS = "agentcli.policies.vllm_worker.WeightSums"
CPU_CACHE = 2**30
"""Bytes for keys and values on a CPU."""
RESUME = "resume with --resume, which starts a new engine"

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


LEAST_TEMPERATURE = 0.01
"""vLLM takes lower ones for it, and 1e-5 for greedy sampling, with a warning alone."""
SET_HERE = {
    "model": "policy.model",
    "dtype": "policy.dtype",
    "max_model_len": "policy.vllm.max_model_len",
    "tensor_parallel_size": "policy.vllm.tensor_parallel",
    "data_parallel_size": "policy.vllm.replicas",
    "gpu_memory_utilization": "policy.vllm.gpu_memory_utilization",
    "enable_sleep_mode": "policy.vllm.sleep",
    "enable_lora": "train.lora.rank",
    "max_lora_rank": "train.lora.rank",
    "skip_tokenizer_init": None,
    "generation_config": None,
    "logprobs_mode": None,
    "worker_extension_cls": None,
    "disable_log_stats": None,
}
"""Arguments of vLLM that policy.vllm.options may not contain, and the settings that they
come from.
"""


class VllmPolicy(Waiting):
    """Samples from an engine, which keeps running between the iterations of a loop.

    The engine holds a model, or a base model with an adapter, and has room for adapters
    up to the rank train.lora.rank. Requests are passed to it one by one, since it
    batches them itself. It caches the keys and values of prompts, so that siblings'
    prompts are computed once. Of several replicas one answers all requests of a task.
    Create and use it in one event loop. Raises MissingError if the engine does not
    start.
    """

    def __init__(self, model: str, settings: Settings, tokens: ChatTokens) -> None:
        super().__init__()
        chosen = settings.policy.vllm
        base = adapter_base(model)
        adapter = model if base else settings.policy.adapter
        self.tokens = tokens
        self._base = base or model
        self._numbers = itertools.count(1)
        self._adapter: Any = None
        self._rank = max(settings.train.lora.rank, rank_of(adapter) if adapter else 0)
        with environment(settings.threads):
            # This process reports a dead engine itself, in one line.
            logging.getLogger("vllm").setLevel(logging.CRITICAL)
            options = engine_options(self._base, settings, self._rank)
            self._sleep = chosen.sleep if _can_sleep() else 0
            self._engine = _start(options, bool(self._sleep))
        self._replicas = chosen.replicas
        self._max_model_len: int = options["max_model_len"]
        # Now: a loop may drop the folder of this model later.
        self._can_be_longer = self._max_model_len < longest_sequence(self._base)
        if adapter:
            self._adapter = self._numbered(adapter)

    async def respond(self, request: Request) -> Reply:
        """Samples one response.

        Raises PromptTooLongError for a prompt longer than policy.max_prompt_tokens, or
        one that leaves no room for the response, and MissingError for a dead engine.
        """
        item = self.tokens.prompted(request)
        remedy = "raise policy.vllm.max_model_len" if self._can_be_longer else LOWER
        refuse_crowded(item, self._max_model_len, remedy)
        replica = replica_of(request.moment.copies[0].task.id, self._replicas)
        with self.waiting():
            response, logprobs = await self._generate(item, replica)
        reply = self.tokens.reply(item, response, logprobs)
        return self.tokens.with_shared_tokens(reply, item, request)

    async def _generate(
        self, item: Prompted, replica: int
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
            # That of the sampled token, and of no further ones.
            logprobs=0,
            stop_token_ids=self.tokens.ends,
            detokenize=False,
            # One output when all is done; each step would cross two processes.
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = TokensPrompt(prompt_token_ids=item.prompt)
        number = str(next(self._numbers))
        with _faults_in_one_line():
            outputs = self._engine.generate(
                prompt,
                parameters,
                number,
                lora_request=self._adapter,
                data_parallel_rank=replica,
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

        Raises UsageError for any other adapter, MissingError for a dead engine, and
        PolicyError if it does not hold the checkpoint's weights afterwards.
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
            # The engine's processes may have another working directory.
            source = Path(checkpoint).absolute()
            loadable = folder_with_head(source) if _on_cpu() else nullcontext(source)
            with loadable as folder:
                await self._reload(folder)
                # Summing takes memory that the cache has not taken yet.
                holds = await self._holds(folder)
            await self._wake("kv_cache")
            # Keys and values of the former weights survive a reload.
            await self._engine.reset_prefix_cache()
        if not holds:
            raise PolicyError(
                f"policy.kind vllm: the engine does not hold the weights of "
                f"{checkpoint}, which it was given; {RESUME}"
            )

    async def rest(self) -> None:
        """Frees the GPU for a training, as set by policy.vllm.sleep."""
        if self._sleep and not self._engine.errored:
            # An adapter is useless without its base, which level 2 discards.
            level = 1 if self._adapter else self._sleep
            await self._engine.sleep(level)

    async def close(self) -> None:
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

    async def _reload(self, folder: Path) -> None:
        if self._adapter is not None:
            await self._engine.add_lora(self._adapter)
        else:
            place = {"weights_path": str(folder)}
            await self._engine.collective_rpc("reload_weights", kwargs=place)

    async def _holds(self, folder: Path) -> bool:
        """Whether every replica holds the weights in the folder (vllm_worker.py)."""
        from agentcli.policies.vllm_worker import same_sums

        number = self._adapter.lora_int_id if self._adapter else None
        # vLLM's collective_rpc would give the answer of the first replica alone.
        replicas = await self._engine.engine_core.call_utility_all_async(
            "collective_rpc", "sums_of_weights", None, (str(folder), number), None
        )
        return all(map(same_sums, replicas))

    def _numbered(self, adapter: str) -> Any:
        """The adapter under a number that was not used before."""
        from vllm.lora.request import LoRARequest

        # Never the number of an earlier adapter: vLLM would ignore the new one.
        number = next(self._numbers)
        return LoRARequest(f"adapter-{number}", number, str(Path(adapter).absolute()))


def replica_of(task: str, replicas: int) -> int:
    """The replica for the task with this id, the same in every run."""
    # Not hash(), which Python salts anew in every process.
    return crc32(task.encode()) % replicas


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
    with environ_with(new):
        yield


@contextmanager
def folder_with_head(checkpoint: Path) -> Iterator[Path]:
    """The checkpoint; with tied embeddings, a temporary copy with its own head.

    On a CPU, vLLM's reload does not change a head that is not in the files. On a GPU
    the head and the embeddings are one parameter.
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


def check_vllm(settings: Settings) -> None:
    """Raises UsageError for what vLLM does not have, and for too few GPUs."""
    if 0 < settings.policy.temperature < LEAST_TEMPERATURE:
        raise UsageError(
            f"policy.temperature: {settings.policy.temperature:g}, but vLLM samples at "
            f"{LEAST_TEMPERATURE:g} then, or greedily; set 0, or {LEAST_TEMPERATURE:g} "
            "at least"
        )
    chosen = settings.policy.vllm
    gpus = chosen.replicas * chosen.tensor_parallel
    if gpus > 1 and settings.cluster.is_local:
        import torch

        there = torch.cuda.device_count()
        if 0 < there < gpus:
            raise UsageError(
                f"policy.vllm.replicas {chosen.replicas}, "
                f"policy.vllm.tensor_parallel {chosen.tensor_parallel}: these take "
                f"{gpus} GPUs, and {there} are visible; lower one of them"
            )
    for name in chosen.options:
        if name in SET_HERE:
            setting = SET_HERE[name]
            remedy = f"set {setting} instead" if setting else "leave it out"
            raise UsageError(
                f"policy.vllm.options.{name}: is set by agentcli; {remedy}"
            )
    if chosen.options:
        from vllm.engine.arg_utils import AsyncEngineArgs

        names = [argument.name for argument in fields(AsyncEngineArgs)]
        for name in chosen.options:
            if name not in names:
                raise UsageError(
                    f"policy.vllm.options.{name}: vLLM has no such argument; did you "
                    f"mean {closest(name, names, 0.0)}?"
                )


def engine_options(base: str, settings: Settings, lora_rank: int) -> dict[str, Any]:
    """The engine's arguments by name, including those derived from the settings."""
    policy = settings.policy
    chosen = policy.vllm
    room = policy.max_prompt_tokens + policy.max_tokens
    length = chosen.max_model_len or min(room, longest_sequence(base))
    in_flight = settings.rollout.concurrency * settings.rollout.leaves
    options: dict[str, Any] = {
        "model": base,
        "skip_tokenizer_init": True,
        "dtype": resolve_dtype(policy.dtype, "cpu" if _on_cpu() else "cuda"),
        # Else top_k and the like of the model's own files would apply.
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "max_model_len": length,
        "max_num_seqs": max(policy.batch_rows, min(in_flight, MOST_RUNNING)),
        "max_num_batched_tokens": max(length, TOKENS_PER_STEP),
        "tensor_parallel_size": chosen.tensor_parallel,
        "data_parallel_size": chosen.replicas,
        "gpu_memory_utilization": chosen.gpu_memory_utilization,
        "worker_extension_cls": WORKERS,
        # Progress is the command's to show.
        "use_tqdm_on_load": False,
    }
    if lora_rank:
        options |= {"enable_lora": True, "max_lora_rank": room_for_rank(lora_rank)}
    if _on_cpu():
        refuse_odd_heads(base)
        options |= {
            "enforce_eager": True,
            # The engine has to share main memory.
            "kv_cache_memory_bytes": CPU_CACHE,
            # With chunked prefill, a seeded request would end the engine.
            "enable_chunked_prefill": False,
        }
    options |= chosen.options
    if settings.train.float32_head:
        overrides = options.get("hf_overrides", {})
        options["hf_overrides"] = {**overrides, "head_dtype": "float32"}
    return options


def room_for_rank(lora_rank: int) -> int:
    """The smallest rank in vLLM's list that an adapter of this rank fits in.

    Raises UsageError where there is none.
    """
    for rank in LORA_RANKS:
        if rank >= lora_rank:
            return rank
    raise UsageError(
        f"policy.kind vllm: an adapter of rank {lora_rank}, and vLLM takes ranks up to "
        f"{LORA_RANKS[-1]}; lower train.lora.rank, or leave vllm out"
    )


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


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _can_sleep() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_sleep_mode_available())


def _start(options: dict[str, Any], sleeps: bool) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine import coordinator
    from vllm.v1.engine.async_llm import AsyncLLM

    # Otherwise it would outlive a killed command.
    coordinator.DPCoordinatorProc.run_coordinator = staticmethod(coordinate)
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
        raise MissingError(f"policy.kind vllm: its engine failed; {RESUME}") from error
    except Exception as error:
        raise PolicyError(f"policy.kind vllm: {first_line(error)}; {RESUME}") from error
